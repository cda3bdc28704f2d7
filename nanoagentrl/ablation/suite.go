package ablation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
)

// Spec is what a suite file says.
type Spec struct {
	// Title heads the table and the figure, Question is what the suite answers.
	Title    string `yaml:"title"`
	Question string `yaml:"question"`
	// Base is the config that all runs start from.
	Base string `yaml:"base"`
	// Seeds is the number of runs of each variant; their seeds are 1, 2, 3 …
	Seeds int `yaml:"seeds" min:"1" max:"100"`
	// Set are overrides of the base, key=value, that all runs share.
	Set []string `yaml:"set"`
	// Watch are the metrics that the figure shows beside the exact match, of those of WatchNames.
	Watch []string `yaml:"watch"`
	// Variants are what is compared, the first with each of the others.
	Variants []Variant `yaml:"variants"`
}

// Variant is one way to train.
type Variant struct {
	Name string `yaml:"name"`
	// Set are overrides, key=value, over the base and what all runs share.
	Set []string `yaml:"set"`
}

// Suite is a question and the runs that answer it.
type Suite struct {
	// Name is that of the file without its ending; Path is the file.
	Name, Path string
	Spec
}

// ours are the keys that the grid sets for each run.
var ours = []string{"run_dir", "seed", "showcase", "figure"}

// word is what names of suites and variants are made of, since they are names of folders as well.
var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// Load reads a suite file as strictly as a config. The error holds everything that is wrong with it, one fault a line.
func Load(path string) (*Suite, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("suite: %w", err)
	}
	s := &Suite{Name: strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), Path: filepath.ToSlash(path),
		Spec: Spec{Seeds: 3}}
	if err := config.Decode(path, text, &s.Spec); err != nil {
		return nil, err
	}
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("suite %s:\n%w", path, err)
	}
	return s, nil
}

func (s *Suite) validate() error {
	faults := config.Check(&s.Spec)
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !word.MatchString(s.Name) {
		fault("the file's name, %q, names folders: letters, digits and . _ - only", s.Name)
	}
	for _, need := range []struct{ key, value string }{{"title", s.Title}, {"question", s.Question}, {"base", s.Base}} {
		if strings.TrimSpace(need.value) == "" {
			fault("%s: is missing", need.key)
		}
	}
	if len(s.Variants) < 2 {
		fault("variants: got %d, want at least 2 to compare", len(s.Variants))
	}
	if _, err := keysOf(s.Set); err != nil {
		fault("set: %w", err)
	}
	for _, metric := range s.Watch {
		if _, ok := watched(metric); !ok {
			fault("watch: unknown metric %q; choose of %s", metric, strings.Join(WatchNames(), ", "))
		}
	}
	seen := map[string]string{} // as folders, on systems where A and a are the same
	for i, v := range s.Variants {
		switch first, twice := seen[strings.ToLower(v.Name)]; {
		case !word.MatchString(v.Name):
			fault("variants.%d.name: got %q, want letters, digits and . _ - only: it names a folder", i+1, v.Name)
		case twice:
			fault("variants.%d.name: %s is there twice (first as %s)", i+1, v.Name, first)
		}
		seen[strings.ToLower(v.Name)] = v.Name
		if _, err := keysOf(v.Set); err != nil {
			fault("variants.%d (%s): set: %w", i+1, v.Name, err)
		}
	}
	return errors.Join(faults...)
}

// keysOf returns the keys of overrides. One that is no override, a key that is there twice, and a key of the grid's own
// are errors; whether the config has a key shows only when it is set.
func keysOf(overrides []string) (keys []string, err error) {
	var faults []error
	for _, override := range overrides {
		key, _, ok := strings.Cut(override, "=")
		key = strings.ReplaceAll(strings.TrimSpace(key), "-", "_")
		switch {
		case !ok:
			faults = append(faults, fmt.Errorf("got %q, want key=value", override))
		case slices.Contains(keys, key):
			faults = append(faults, fmt.Errorf("%s is given twice", key))
		case slices.Contains(ours, key):
			faults = append(faults, fmt.Errorf("%s is set for each run by the grid", key))
		}
		keys = append(keys, key)
	}
	return keys, errors.Join(faults...)
}

// varied returns the keys that the variants set.
func (s *Suite) varied() (all []string) {
	for _, v := range s.Variants {
		keys, _ := keysOf(v.Set) // Load has looked at them
		all = append(all, keys...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// names returns the names of the variants.
func (s *Suite) names() []string {
	names := make([]string, len(s.Variants))
	for i, v := range s.Variants {
		names[i] = v.Name
	}
	return names
}
