package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Stored is a tokenizer as a checkpoint folder keeps it: with its settings, and able to write itself.
type Stored interface {
	Tokenizer
	// Settings returns the tokens with a role and the chat templates.
	Settings() Settings
	// Save writes tokenizer.json, tokenizer_config.json and what else belongs to the tokenizer into dir, which is made
	// if need be, so that Load and Python's transformers read the same tokenizer back. Files that the tokenizer was
	// read from are written unchanged.
	Save(dir string) error
}

// Load reads the tokenizer of a Hugging Face folder: a BPE or a Words, as model.type in its tokenizer.json says.
func Load(dir string) (Stored, error) {
	files := map[string][]byte{}
	for _, name := range []string{tokenizerJSON, configJSON, specialTokensMap, chatTemplateFile} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("tokenizer: %w", err)
		}
		files[name] = data
	}
	if files[tokenizerJSON] == nil {
		return nil, fmt.Errorf("tokenizer: %s has no %s; models that only have a tokenizer.model or vocab.json must be "+
			"saved once with a fast tokenizer of transformers", dir, tokenizerJSON)
	}
	settings, err := settingsFrom(files)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", dir, err)
	}
	t, err := fromFile(files[tokenizerJSON])
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", filepath.Join(dir, tokenizerJSON), err)
	}
	switch t := t.(type) {
	case *BPE:
		t.settings, t.files = settings, files
	case *Words:
		t.settings, t.files = settings, files
	}
	return t, nil
}

// LoadFile reads a byte-level BPE tokenizer from a tokenizer.json, without the settings beside it. See FromJSON and
// Load.
func LoadFile(path string) (*BPE, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	b, err := FromJSON(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
	}
	return b, nil
}

// fromFile reads a tokenizer.json of either kind.
func fromFile(data []byte) (Stored, error) {
	file, err := parseTokenizerFile(data)
	if err != nil {
		return nil, err
	}
	if file.Model.Type == wordLevel {
		return file.words()
	}
	return file.newBPE()
}

// parseTokenizerFile decodes a tokenizer.json.
func parseTokenizerFile(data []byte) (*tokenizerFile, error) {
	var file tokenizerFile
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, jsonError(data, err)
	}
	if file.Model == nil {
		return nil, errors.New("model is missing; this is not a tokenizer.json")
	}
	return &file, nil
}
