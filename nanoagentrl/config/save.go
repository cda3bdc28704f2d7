package config

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/atomicfile"
)

//go:embed fields.go
var fieldsSource string

// doc is what the source of the struct says about one key.
type doc struct {
	// section is the heading that stands before the key, if any.
	section string
	// lines are the lines of the doc comment, with the field's name replaced by the key.
	lines []string
}

// docs reads the comments of the struct's fields from the source, so that they are written once. A source that cannot
// be read gives a file without comments; a test guards against it.
var docs = sync.OnceValue(func() map[string]doc {
	result := map[string]doc{}
	file, err := parser.ParseFile(token.NewFileSet(), "fields.go", fieldsSource, parser.ParseComments)
	if err != nil {
		return result
	}
	comments := file.Comments
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.StructType)
		if !ok {
			return true
		}
		for _, field := range s.Fields.List {
			var d doc
			for ; len(comments) > 0 && comments[0].Pos() < field.Pos(); comments = comments[1:] {
				if comments[0] != field.Doc && comments[0].Pos() > s.Pos() {
					d.section = strings.TrimSpace(comments[0].Text())
				}
			}
			key := reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("yaml")
			text := strings.Replace(field.Doc.Text(), field.Names[0].Name, key, 1)
			d.lines = strings.Split(strings.TrimSpace(text), "\n")
			result[key] = d
		}
		return false
	})
	return result
})

// YAML returns every key with its comment and value, in the order of the struct: the resolved file.
func (c *Config) YAML() ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("# The settings of the run as they were resolved: defaults, then the file, then overrides.\n")
	for _, key := range Keys() {
		d := docs()[key]
		if d.section != "" {
			fmt.Fprintf(&out, "\n# %s\n", d.section)
		}
		out.WriteByte('\n')
		for _, line := range d.lines {
			fmt.Fprintf(&out, "# %s\n", line)
		}
		field, _ := c.field(key)
		if field.Kind() != reflect.String {
			fmt.Fprintf(&out, "%s: %s\n", key, format(field))
			continue
		}
		text, err := yaml.Marshal(map[string]string{key: field.String()})
		if err != nil {
			return nil, fmt.Errorf("config: write %s: %w", key, err)
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

// Save writes the resolved file, which Load reads back to an equal Config. It appears under its name only once it is
// whole.
func (c *Config) Save(path string) error {
	text, err := c.YAML()
	if err != nil {
		return err
	}
	if err := atomicfile.Write(path, text); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	return nil
}

// Fingerprint returns the keys that change what the run computes, with their values as one line of YAML. A run may
// only be resumed with an equal fingerprint. steps belongs to it only if the learning rate's schedule depends on it.
func (c *Config) Fingerprint() map[string]string {
	t := reflect.TypeFor[Config]()
	fingerprint := map[string]string{}
	for i, key := range Keys() {
		if t.Field(i).Tag.Get("free") == "" {
			fingerprint[key] = format(reflect.ValueOf(c).Elem().Field(i))
		}
	}
	if c.LRSchedule == "constant" {
		delete(fingerprint, "steps")
	}
	return fingerprint
}

// Hash returns the SHA-256 of the fingerprint in hexadecimal.
func (c *Config) Hash() string {
	fingerprint := c.Fingerprint()
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(fingerprint)) {
		fmt.Fprintf(h, "%s: %s\n", key, fingerprint[key])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Changed returns the keys, in alphabetic order, whose values differ between two fingerprints, one "key: old -> new"
// each.
func Changed(before, after map[string]string) []string {
	var changes []string
	union := maps.Clone(before)
	if union == nil {
		union = map[string]string{}
	}
	maps.Copy(union, after)
	for _, key := range slices.Sorted(maps.Keys(union)) {
		b, hadBefore := before[key]
		a, hasAfter := after[key]
		if !hadBefore {
			b = "(none)"
		}
		if !hasAfter {
			a = "(none)"
		}
		if a != b {
			changes = append(changes, fmt.Sprintf("%s: %s -> %s", key, b, a))
		}
	}
	return changes
}

// Summary says in a few lines what a run with these settings does.
func (c *Config) Summary() string {
	episodes := c.PromptsPerStep * c.GroupSize
	updates := c.InnerEpochs * c.Minibatches
	var out strings.Builder
	fmt.Fprintf(&out, "task %s, model %s, %s, backend %s, seed %d\n", c.Task, c.Model, c.DType, c.Backend, c.Seed)
	fmt.Fprintf(&out, "batch: %d prompts x %d samples = %d episodes a step; %d weight %s a step, each over %d episodes\n",
		c.PromptsPerStep, c.GroupSize, episodes, updates, plural(updates, "update"), episodes/max(c.Minibatches, 1))
	fmt.Fprintf(&out, "run: %d %s = %d prompts, %d episodes, at most %d policy tokens\n",
		c.Steps, plural(c.Steps, "step"), c.Steps*c.PromptsPerStep, c.Steps*episodes, c.Steps*episodes*c.MaxNewTokens)
	fmt.Fprintf(&out, "algorithm: %s (advantage %s, ratio %s)", c.Algorithm, c.Advantage, c.Ratio)
	if deviations := c.Deviations(); len(deviations) > 0 {
		fmt.Fprintf(&out, ", changed: %s", strings.Join(deviations, ", "))
	}
	out.WriteByte('\n')
	fmt.Fprintf(&out, "loss: %s, clip %g/%g, kl %g %s in the %s; lr %g %s, warm-up %d, grad norm %g\n", c.LossAgg, c.ClipLow,
		c.ClipHigh, c.KLCoef, c.KLEstimator, c.KLIn, c.LR, c.LRSchedule, c.WarmupSteps, c.MaxGradNorm)
	if c.Task == "search" {
		engine := c.RetrieverURL
		if c.OpenSearchURL != "" {
			engine = "OpenSearch index " + c.OpenSearchIndex
		}
		if engine == "" {
			engine = map[string]string{"bm25": "BM25", "dense": "dense", "hybrid": "hybrid"}[c.RetrieverKind] + " in process over " +
				c.Corpus
		}
		fmt.Fprintf(&out, "search: %s, top %d, at most %d turns\n", engine, c.TopK, c.MaxTurns)
	}
	return out.String()
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
