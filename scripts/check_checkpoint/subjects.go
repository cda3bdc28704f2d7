package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/weights"
)

// subject is one checkpoint to be made.
type subject struct {
	name string
	// settings makes what the training run starts from in dir and returns its settings, key=value.
	settings func(dir string) ([]string, error)
}

// oneStep is one step of training on a world made in memory, with few tokens.
var oneStep = []string{
	"task=search", "train_data=tiny", "corpus=tiny", "eval_data=[]", "eval_every=0", "eval_at_start=false",
	"best_metric=", "steps=1", "save_every=1", "sample_every=1", "system_prompt=", "chat_template=never",
	"prompts_per_step=2", "group_size=4", "max_turns=2", "max_new_tokens=32", "max_turn_tokens=16", "max_obs_tokens=64",
	"topk=1", "max_context=384", "reward_valid_turns=0.5",
}

// subjects lists the checkpoints that are made: of tiny models with words for tokens, of tiny models with the
// tokenizers of the pretrained ones given, and of pretrained models.
func subjects(tokenizers, models []string) ([]subject, error) {
	list := []subject{
		{"tiny_qwen2", func(string) ([]string, error) {
			return slices.Concat(oneStep, []string{"backend=go", "model=random", "user_prompt={question}", "kl_coef=0",
				"lr=0.01"}), nil
		}},
		{"tiny_qwen2_tied", withWords(nn.Config{
			ModelType: "qwen2", HiddenSize: 48, IntermediateSize: 96, NumLayers: 2, NumHeads: 4, NumKVHeads: 2,
			HeadDim: 16, MaxPositions: 512, RopeTheta: 1e6, NormEps: 1e-6, AttentionBias: true, TieEmbeddings: true,
		})},
		{"tiny_llama", withWords(nn.Config{
			ModelType: "llama", HiddenSize: 64, IntermediateSize: 80, NumLayers: 3, NumHeads: 4, NumKVHeads: 1,
			HeadDim: 16, MaxPositions: 1024, RopeTheta: 10000, NormEps: 1e-5,
			RopeScaling: &nn.RopeScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 128},
		})},
	}
	for _, path := range tokenizers {
		list = append(list, subject{"tiny_" + stem(path), withTokenizerOf(path)})
	}
	for _, path := range models {
		list = append(list, subject{stem(path), func(string) ([]string, error) { return pretrained(path), nil }})
	}
	seen := map[string]bool{}
	for _, s := range list {
		if seen[s.name] {
			return nil, fmt.Errorf("two of the models would be called %s; rename a file", s.name)
		}
		seen[s.name] = true
	}
	return list, nil
}

// stem returns the name of a file without folder and extension.
func stem(path string) string {
	return strings.TrimSuffix(filepath.Base(filepath.Clean(path)), filepath.Ext(path))
}

// prompt shows a pretrained model what to write, so that some of its turns are valid and the step has a signal.
const prompt = `Question: where was Paul Ford born ?
<search>Paul Ford</search>

Question: what is the trade of Rita Lund ?
<search>Rita Lund</search>

Question: {question}
`

func pretrained(path string) []string {
	return slices.Concat(oneStep, []string{"model=" + path, "offline=true", "user_prompt=" + prompt, "kl_coef=0",
		"lr=1e-4"})
}

// withWords starts from a model of random weights whose tokens are words. As in some pretrained models, the embedding
// has rows beyond the last token, and there are several end tokens.
func withWords(cfg nn.Config) func(dir string) ([]string, error) {
	return func(dir string) ([]string, error) {
		words := slices.Concat(
			[]string{tokenizer.WordUnk, tokenizer.WordPad, tokenizer.WordBOS, tokenizer.WordEOS},
			strings.Fields("<think> </think> <search> </search> <information> </information> <answer> </answer>"),
			data.TinyVocabulary())
		tok, err := tokenizer.NewWords(words)
		if err != nil {
			return nil, err
		}
		cfg.VocabSize = len(words) + 3
		cfg.EOS = append(tokenizer.EndIDs(tok), len(words)-1)
		cfg.BOS, _ = tok.TokenID(tokenizer.WordBOS)
		cfg.Pad, _ = tok.TokenID(tokenizer.WordPad)
		return fromFolder(dir, cfg, tok)
	}
}

// withTokenizerOf starts from a model of random weights, tiny but for its vocabulary, of the kind and with the
// tokenizer of a pretrained model.
func withTokenizerOf(path string) func(dir string) ([]string, error) {
	return func(dir string) ([]string, error) {
		src, err := weights.Open(path)
		if err != nil {
			return nil, err
		}
		defer src.Close()
		var tok tokenizer.Stored
		if meta := src.Metadata(); meta != nil {
			tok, err = tokenizer.FromGGUF(meta)
		} else {
			tok, err = tokenizer.Load(src.Path())
		}
		if err != nil {
			return nil, err
		}
		cfg := src.Config()
		cfg.HiddenSize, cfg.IntermediateSize, cfg.NumLayers = 32, 32, 1
		cfg.NumHeads, cfg.NumKVHeads, cfg.HeadDim = 2, 1, 16
		if len(cfg.EOS) == 0 {
			cfg.EOS = tokenizer.EndIDs(tok)
		}
		return fromFolder(dir, cfg, tok)
	}
}

// fromFolder starts from a model of random weights in a Hugging Face folder. It earns no rewards; what moves it is the
// penalty for its distance from a reference with other weights.
func fromFolder(dir string, cfg nn.Config, tok tokenizer.Stored) ([]string, error) {
	base, reference := filepath.Join(dir, "base"), filepath.Join(dir, "reference")
	for i, folder := range []string{base, reference} {
		if err := weights.SaveFolder(folder, cfg, randomWeights(cfg, uint64(i)), weights.SaveOptions{}); err != nil {
			return nil, err
		}
		if err := tok.Save(folder); err != nil {
			return nil, err
		}
	}
	return slices.Concat(oneStep, []string{"backend=go", "model=" + base, "reference=" + reference, "kl_coef=1",
		"lr=0.02", "user_prompt={question}", "prompts_per_step=1", "group_size=2", "max_new_tokens=8"}), nil
}

// randomWeights returns a function that makes the tensors of a model, of which each matters to the result: biases are
// not 0, norms not 1, and the scores of tokens are spread as widely as in a trained model.
func randomWeights(cfg nn.Config, seed uint64) func(name string) ([]float32, error) {
	random := rand.New(rand.NewPCG(seed, 0x636b))
	shapes := map[string][]int{}
	for _, p := range cfg.Params() {
		shapes[p.Name] = p.Shape
	}
	return func(name string) ([]float32, error) {
		shape, mean, std := shapes[name], 0.0, 0.3
		size := shape[0]
		switch {
		case len(shape) == 2:
			size, std = shape[0]*shape[1], 1/math.Sqrt(float64(shape[1]))
		case strings.HasSuffix(name, "norm.weight"):
			mean = 1
		}
		if strings.HasSuffix(name, "embed_tokens.weight") || strings.HasSuffix(name, "lm_head.weight") {
			std *= 2
		}
		values := make([]float32, size)
		for i := range values {
			values[i] = float32(mean + std*random.NormFloat64())
		}
		return values, nil
	}
}
