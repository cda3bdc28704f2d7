package embed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn/bert"
)

// bertJSON is what decides in config.json what an encoder computes.
type bertJSON struct {
	ModelType        string  `json:"model_type"`
	Name             string  `json:"_name_or_path"`
	VocabSize        int     `json:"vocab_size"`
	HiddenSize       int     `json:"hidden_size"`
	IntermediateSize int     `json:"intermediate_size"`
	NumLayers        int     `json:"num_hidden_layers"`
	NumHeads         int     `json:"num_attention_heads"`
	MaxPositions     int     `json:"max_position_embeddings"`
	TypeVocabSize    int     `json:"type_vocab_size"`
	NormEps          float64 `json:"layer_norm_eps"`
	HiddenAct        string  `json:"hidden_act"`
	Positions        string  `json:"position_embedding_type"`
	IsDecoder        bool    `json:"is_decoder"`
}

// settings are all that the files of a folder say, but for the weights and the vocabulary.
type settings struct {
	config bert.Config
	name   string
	// maxTokens is the longest text in tokens, special ones included.
	maxTokens int
	// lowercase says that texts are made small before they are cut.
	lowercase                  bool
	queryPrefix, passagePrefix string
}

// readSettings reads config.json and, where they are, the files of sentence-transformers beside it.
func readSettings(dir, ref string) (*settings, error) {
	s := new(settings)
	if err := s.readConfig(dir); err != nil {
		return nil, err
	}
	if err := readModules(dir); err != nil {
		return nil, err
	}
	var sentence struct {
		MaxTokens int  `json:"max_seq_length"`
		Lowercase bool `json:"do_lower_case"`
	}
	var tokens struct {
		MaxTokens float64 `json:"model_max_length"` // 1e30 stands for none
	}
	var prompted struct {
		Prompts map[string]string `json:"prompts"`
	}
	for name, into := range map[string]any{"sentence_bert_config.json": &sentence, "tokenizer_config.json": &tokens,
		"config_sentence_transformers.json": &prompted} {
		if _, err := readJSON(dir, name, into); err != nil {
			return nil, err
		}
	}
	s.lowercase = sentence.Lowercase
	s.maxTokens = s.config.MaxPositions
	if sentence.MaxTokens > 0 {
		s.maxTokens = min(s.maxTokens, sentence.MaxTokens)
	} else if tokens.MaxTokens >= 1 {
		s.maxTokens = int(min(float64(s.maxTokens), tokens.MaxTokens))
	}
	if isE5(ref) || isE5(dir) || isE5(s.name) {
		s.queryPrefix, s.passagePrefix = "query: ", "passage: "
	}
	for name, prompt := range prompted.Prompts {
		switch name {
		case "query":
			s.queryPrefix = prompt
		case "passage", "document":
			s.passagePrefix = prompt
		}
	}
	return s, nil
}

func (s *settings) readConfig(dir string) error {
	c := bertJSON{TypeVocabSize: 2, NormEps: 1e-12, HiddenAct: "gelu", Positions: "absolute"}
	found, err := readJSON(dir, "config.json", &c)
	path := filepath.Join(dir, "config.json")
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("%s: there is no config.json, so this is not the folder of an encoder", dir)
	case c.ModelType != "bert":
		return fmt.Errorf("%s: model_type is %q; encoders that can be used here are of type bert, such as all-MiniLM-L6-v2 and "+
			"e5-small-v2", path, c.ModelType)
	case c.HiddenAct != "gelu":
		return fmt.Errorf("%s: hidden_act is %q; only gelu is supported", path, c.HiddenAct)
	case c.Positions != "absolute":
		return fmt.Errorf("%s: position_embedding_type is %q; only absolute is supported", path, c.Positions)
	case c.IsDecoder:
		return fmt.Errorf("%s: is_decoder is true; only encoders are supported", path)
	}
	s.name = c.Name
	s.config = bert.Config{VocabSize: c.VocabSize, HiddenSize: c.HiddenSize, IntermediateSize: c.IntermediateSize,
		NumLayers: c.NumLayers, NumHeads: c.NumHeads, MaxPositions: c.MaxPositions, TypeVocabSize: c.TypeVocabSize,
		NormEps: c.NormEps}
	if err := s.config.Validate(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// readModules refuses what sentence-transformers would do and this program does not.
func readModules(dir string) error {
	var modules []struct {
		Type string `json:"type"`
		Path string `json:"path"`
	}
	if found, err := readJSON(dir, "modules.json", &modules); err != nil || !found {
		return err
	}
	for _, m := range modules {
		switch kind := m.Type[strings.LastIndexByte(m.Type, '.')+1:]; kind {
		case "Transformer", "Normalize":
		case "Pooling":
			if !filepath.IsLocal(m.Path) {
				return fmt.Errorf("%s: modules.json names the folder %q", dir, m.Path)
			}
			if err := checkPooling(dir, filepath.Join(m.Path, "config.json")); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s: modules.json has a %s; supported are Transformer, Pooling and Normalize", dir, kind)
		}
	}
	return nil
}

// checkPooling refuses every pooling but the mean.
func checkPooling(dir, name string) error {
	var flags map[string]any
	if found, err := readJSON(dir, name, &flags); err != nil || !found {
		return err
	}
	for key, value := range flags {
		mode, isMode := strings.CutPrefix(key, "pooling_mode_")
		on, _ := value.(bool)
		if text, ok := value.(string); ok && key == "pooling_mode" {
			mode, isMode, on = strings.TrimSuffix(text, "_tokens")+"_tokens", true, true
		}
		if isMode && on != (mode == "mean_tokens") {
			return fmt.Errorf("%s: %s is %v; only the mean of all tokens is supported", filepath.Join(dir, name), key, value)
		}
	}
	return nil
}

// readJSON reads a file of a folder if it is there.
func readJSON(dir, name string, into any) (found bool, err error) {
	path := filepath.Join(dir, name)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return true, nil
}

var e5 = regexp.MustCompile(`(?i)(^|[-_])e5([-_.]|$)`)

// isE5 reports whether a model's name or folder says that it is one of the E5 family (arXiv:2212.03533), which wants
// texts marked as queries and passages.
func isE5(name string) bool {
	name = filepath.ToSlash(name)
	parts := strings.Split(strings.TrimRight(name, "/"), "/")
	last := parts[len(parts)-1]
	if n := len(parts); n >= 3 && parts[n-2] == "snapshots" { // the cache of the hub: models--org--name/snapshots/commit
		last = parts[n-3]
	}
	return e5.MatchString(last)
}
