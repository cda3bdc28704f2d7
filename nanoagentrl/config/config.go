// Package config holds the settings of a run: one flat struct, read strictly from a YAML file, changed by key=value
// overrides, checked as a whole before anything is loaded, and saved as it was resolved.
//
// A setting has exactly four sources, the later winning: Default, the values that the chosen algorithm brings, the
// file, an override given by the user. The default of a command-line flag is never one of them.
//
// It leaves out nested sections, includes and environment variables.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Open reads path, applies overrides ("key=value"), and validates the result. It returns what the overrides changed,
// one "key: old -> new" each. The error holds every fault found, one a line.
func Open(path string, overrides []string) (*Config, []string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("config: %w", err)
	}
	c, lines, err := parse(path, text, algorithmOf(overrides))
	if err != nil {
		return nil, nil, err
	}
	changes, err := c.setAll(overrides)
	if err != nil {
		return nil, nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, nil, traced(err, path, lines, overrides)
	}
	return c, changes, nil
}

// traced puts before each fault that Validate found where its key got the value: the override, the line of the file or,
// for one that neither gives, the file.
func traced(err error, path string, lines map[string]int, overrides []string) error {
	given := map[string]string{}
	for _, override := range overrides {
		key, _, _ := strings.Cut(override, "=")
		given[keyName(key)] = override
	}
	var faults []error
	said := map[string]bool{}
	for fault := range strings.Lines(err.Error()) {
		fault = strings.TrimSuffix(fault, "\n")
		if said[fault] {
			continue
		}
		said[fault] = true
		key, _, _ := strings.Cut(fault, ":")
		switch {
		case given[key] != "":
			fault = fmt.Sprintf("--set %s: %s", given[key], fault)
		case lines[key] > 0:
			fault = fmt.Sprintf("%s:%d: %s", path, lines[key], fault)
		default:
			fault = fmt.Sprintf("%s: %s", path, fault)
		}
		faults = append(faults, errors.New(fault))
	}
	return errors.Join(faults...)
}

// Load reads path over the defaults. Unknown keys, duplicate keys and values of a wrong type are errors that name file
// and line; all of them are reported together. The values are not yet validated, since overrides may follow.
func Load(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	c, _, err := parse(path, text, "")
	return c, err
}

// parse reads a file over the defaults of an algorithm: the one that is given or, if that is "", the file's. It returns
// the line of each key too.
func parse(path string, text []byte, algorithm string) (c *Config, lines map[string]int, err error) {
	c = Default()
	root, err := parseYAML(text)
	if err != nil {
		return nil, nil, fmt.Errorf("config %s: %w", path, err)
	}
	c.follow(cmp.Or(algorithm, algorithmIn(root)))
	if root == nil {
		return c, nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, nil, fmt.Errorf("%s:%d: got %s, want lines of the form key: value", path, root.Line, describe(root))
	}
	var faults []error
	lines = map[string]int{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if line, twice := lines[key.Value]; twice {
			faults = append(faults, fmt.Errorf("%s:%d: %s is given twice, first in line %d",
				path, key.Line, key.Value, line))
			continue
		}
		lines[key.Value] = key.Line
		if err := c.setNode(key.Value, value); err != nil {
			faults = append(faults, fmt.Errorf("%s:%d: %w", path, key.Line, err))
		}
	}
	return c, lines, errors.Join(faults...)
}

// parseYAML returns the top node of the one document in text, or nil if there is none.
func parseYAML(text []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	var documents []yaml.Node
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
	switch {
	case len(documents) == 0 || len(documents[0].Content) == 0:
		return nil, nil
	case len(documents) > 1:
		return nil, fmt.Errorf("line %d: a second YAML document begins; want one", documents[1].Line)
	}
	return documents[0].Content[0], nil
}

// Set changes one key and returns "key: old -> new", or "" if the value was already that. The value of a text is taken
// literally; numbers, true/false and lists ("[a, b]") follow YAML. Key may be written with - for _.
//
// A new algorithm brings its values along for the keys that stand at those of the old one. Open, which sees the file and
// the overrides together, leaves every key alone that one of them sets.
func (c *Config) Set(key, value string) (change string, err error) {
	c.follow(algorithmOf([]string{key + "=" + value}))
	return c.set(key, value)
}

// set is Set for one key alone.
func (c *Config) set(key, value string) (change string, err error) {
	key = keyName(key)
	field, ok := c.field(key)
	if !ok {
		return "", unknownKey(key)
	}
	before := format(field)
	if field.Kind() == reflect.String {
		field.SetString(value)
	} else {
		node, err := parseYAML([]byte(value))
		if err != nil {
			return "", fmt.Errorf("%s: got %q, want %s: %w", key, value, want(field), err)
		}
		if node == nil {
			return "", fmt.Errorf("%s: got nothing, want %s", key, want(field))
		}
		if err := c.setNode(key, node); err != nil {
			return "", err
		}
	}
	if after := format(field); after != before {
		return fmt.Sprintf("%s: %s -> %s", key, before, after), nil
	}
	return "", nil
}

// keyName returns the name of a key that may be written with - for _.
func keyName(key string) string { return strings.ReplaceAll(strings.TrimSpace(key), "-", "_") }

// SetAll applies overrides of the form "key=value" and returns what changed, as Set words it. An algorithm among them
// takes back none of the others. The error names every override that could not be applied.
func (c *Config) SetAll(overrides []string) (changes []string, err error) {
	c.follow(algorithmOf(overrides))
	return c.setAll(overrides)
}

func (c *Config) setAll(overrides []string) (changes []string, err error) {
	var faults []error
	for _, override := range overrides {
		key, value, ok := strings.Cut(override, "=")
		if !ok {
			faults = append(faults, fmt.Errorf("--set %s: want key=value", override))
			continue
		}
		change, err := c.set(key, value)
		if err != nil {
			faults = append(faults, fmt.Errorf("--set %s: %w", override, err))
		} else if change != "" {
			changes = append(changes, change)
		}
	}
	return changes, errors.Join(faults...)
}
