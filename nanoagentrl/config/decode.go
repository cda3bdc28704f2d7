package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v3"
)

// Decode reads one YAML document over the values of target, a pointer to a struct whose fields have yaml tags. It is as
// strict as Load: unknown keys, keys given twice and values of another type are errors that name file and line, all of
// them reported together. Unlike a Config, target may hold structs and lists of structs; the elements of a list begin
// with zero values. Check looks at the values.
func Decode(path string, text []byte, target any) error {
	root, err := parseYAML(text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if root == nil {
		return nil
	}
	d := decoder{path: path}
	d.fill(reflect.ValueOf(target).Elem(), root, "")
	return errors.Join(d.faults...)
}

// decoder collects what is wrong with a document.
type decoder struct {
	path   string
	faults []error
}

func (d *decoder) fault(node *yaml.Node, format string, args ...any) {
	d.faults = append(d.faults, fmt.Errorf("%s:%d: %s", d.path, node.Line, fmt.Sprintf(format, args...)))
}

// fill sets v, which key names, from a node.
func (d *decoder) fill(v reflect.Value, node *yaml.Node, key string) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch {
	case v.Kind() == reflect.Struct:
		d.fillStruct(v, node, key)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		if node.Kind != yaml.SequenceNode {
			d.fault(node, "%s: got %s, want a list", key, describe(node))
			return
		}
		list := reflect.MakeSlice(v.Type(), len(node.Content), len(node.Content))
		for i, element := range node.Content {
			d.fill(list.Index(i), element, fmt.Sprintf("%s.%d", key, i+1))
		}
		v.Set(list)
	case !fits(v.Type(), node) || node.Decode(v.Addr().Interface()) != nil:
		d.fault(node, "%s: got %s, want %s", key, describe(node), want(v))
	}
}

func (d *decoder) fillStruct(v reflect.Value, node *yaml.Node, at string) {
	if node.Kind != yaml.MappingNode {
		d.fault(node, "%sgot %s, want lines of the form key: value", prefixed(at), describe(node))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		if line, twice := seen[name.Value]; twice {
			d.fault(name, "%s%s is given twice, first in line %d", prefixed(at), name.Value, line)
			continue
		}
		seen[name.Value] = name.Line
		field, err := fieldOf(v, name.Value)
		if err != nil {
			d.fault(name, "%s%v", prefixed(at), err)
			continue
		}
		d.fill(field, value, join(at, name.Value))
	}
}

func prefixed(at string) string {
	if at == "" {
		return ""
	}
	return at + ": "
}

func join(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
}

// fieldOf returns the field of a struct that is written as key, or an error with the nearest key there is.
func fieldOf(v reflect.Value, key string) (reflect.Value, error) {
	nearest, best := "", math.MaxInt
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag.Get("yaml")
		if tag == key {
			return v.Field(i), nil
		}
		if d := levenshtein.ComputeDistance(strings.ToLower(key), tag); tag != "" && d < best {
			nearest, best = tag, d
		}
	}
	return reflect.Value{}, fmt.Errorf("unknown key %q; did you mean %s?", key, nearest)
}

// Override changes values of target, a pointer to a struct as Decode takes it, by "key=value". Keys within structs are
// joined with points, elements of lists are counted from 1: "model.layers=3", "stages.2.tokens=1000". It returns what
// changed, "key: old -> new" each; the error names every override that could not be applied.
func Override(target any, overrides []string) (changes []string, err error) {
	var faults []error
	for _, override := range overrides {
		key, text, ok := strings.Cut(override, "=")
		if !ok {
			faults = append(faults, fmt.Errorf("--set %s: want key=value", override))
			continue
		}
		field, err := find(reflect.ValueOf(target).Elem(), strings.TrimSpace(key))
		if err != nil {
			faults = append(faults, fmt.Errorf("--set %s: %w", override, err))
			continue
		}
		before := format(field)
		if err := assign(field, text); err != nil {
			faults = append(faults, fmt.Errorf("--set %s: %w", override, err))
		} else if after := format(field); after != before {
			changes = append(changes, fmt.Sprintf("%s: %s -> %s", key, before, after))
		}
	}
	return changes, errors.Join(faults...)
}

// find walks along the parts of a key.
func find(v reflect.Value, key string) (_ reflect.Value, err error) {
	for part := range strings.SplitSeq(key, ".") {
		switch {
		case v.Kind() == reflect.Struct:
			if v, err = fieldOf(v, strings.ReplaceAll(part, "-", "_")); err != nil {
				return v, err
			}
		case v.Kind() == reflect.Slice:
			i, err := strconv.Atoi(part)
			if err != nil || i < 1 || i > v.Len() {
				return v, fmt.Errorf("got %q, want the number of one of %d elements", part, v.Len())
			}
			v = v.Index(i - 1)
		default:
			return v, fmt.Errorf("nothing stands below the key before %q", part)
		}
	}
	return v, nil
}

// assign sets a field from a text; a field that is a text takes it literally.
func assign(field reflect.Value, text string) error {
	if field.Kind() == reflect.String {
		field.SetString(text)
		return nil
	}
	d := decoder{path: "value"}
	node, err := parseYAML([]byte(text))
	if err != nil || node == nil {
		return fmt.Errorf("got %q, want %s", text, want(field))
	}
	d.fill(field, node, "it")
	return errors.Join(d.faults...)
}

// Check looks at the tags min, max, above and oneof (see Config) of all fields of target, a pointer to a struct as
// Decode takes it. It returns one error for each fault, which begins with the key.
func Check(target any) []error { return check(reflect.ValueOf(target).Elem(), "") }

func check(v reflect.Value, at string) (faults []error) {
	for i := range v.NumField() {
		field, key := v.Type().Field(i), join(at, v.Type().Field(i).Tag.Get("yaml"))
		switch value := v.Field(i); {
		case value.Kind() == reflect.Struct:
			faults = append(faults, check(value, key)...)
		case value.Kind() == reflect.Slice && value.Type().Elem().Kind() == reflect.Struct:
			for j := range value.Len() {
				faults = append(faults, check(value.Index(j), fmt.Sprintf("%s.%d", key, j+1))...)
			}
		default:
			if message := checkField(value, field.Tag); message != "" {
				faults = append(faults, fmt.Errorf("%s: %s", key, message))
			}
		}
	}
	return faults
}
