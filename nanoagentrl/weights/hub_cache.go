package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// hubFiles are the files of a repository, besides the weights, that a model needs; only config.json must be there.
var hubFiles = []string{
	"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
	"added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json",
	"modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "1_Pooling/config.json",
}

// hubCache is the folder of one model in the cache: snapshots/<commit>/<file>, and the commit of each revision in
// refs/<revision> (huggingface_hub) or as "sha" in info/<revision> (go-huggingface).
type hubCache struct {
	dir string
}

func (c *hubCache) snapshot(commit string) string { return filepath.Join(c.dir, "snapshots", commit) }

// commit returns the commit that a revision stood for when it was last fetched.
func (c *hubCache) commit(revision string) (string, error) {
	if commitHash.MatchString(revision) {
		return revision, nil
	}
	revision = filepath.FromSlash(revision)
	if text, err := os.ReadFile(filepath.Join(c.dir, "refs", revision)); err == nil {
		if commit := strings.TrimSpace(string(text)); commitHash.MatchString(commit) {
			return commit, nil
		}
	}
	var info struct {
		Commit string `json:"sha"`
	}
	if text, err := os.ReadFile(filepath.Join(c.dir, "info", revision)); err == nil {
		if json.Unmarshal(text, &info) == nil && commitHash.MatchString(info.Commit) {
			return info.Commit, nil
		}
	}
	return "", fmt.Errorf("%s holds no revision %q", c.dir, revision)
}

// remember notes the commit of a revision, where huggingface_hub looks for it too.
func (c *hubCache) remember(revision, commit string) error {
	if commitHash.MatchString(revision) {
		return nil
	}
	path := filepath.Join(c.dir, "refs", filepath.FromSlash(revision))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("model cache: %w", err)
	}
	return writeFile(path, contents([]byte(commit)))
}

// lookup returns the path of a model whose files are all in the cache.
func (c *hubCache) lookup(r hubRef) (string, error) {
	commit, err := c.commit(r.revision)
	if err != nil {
		return "", err
	}
	dir := c.snapshot(commit)
	if filepath.Ext(r.file) == ".gguf" {
		return filepath.Join(dir, filepath.FromSlash(r.file)), exists(dir, r.file)
	}
	if err := exists(dir, "config.json"); err != nil {
		return "", err
	}
	if r.file != "" {
		return filepath.Join(dir, filepath.FromSlash(r.file)), exists(dir, r.file)
	}
	if exists(dir, singleFile) == nil {
		return dir, nil
	}
	if err := exists(dir, indexFile); err != nil {
		return "", fmt.Errorf("%s holds neither %s nor %s", dir, singleFile, indexFile)
	}
	shards, err := readIndex(dir)
	if err != nil {
		return "", err
	}
	for shard := range shards {
		err = errors.Join(err, exists(dir, shard))
	}
	return dir, err
}

func exists(dir, name string) error {
	path := filepath.Join(dir, filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%s is missing", path)
	}
	return nil
}
