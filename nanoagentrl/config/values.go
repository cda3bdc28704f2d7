package config

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v3"
)

// Keys returns all keys in the order of the struct.
func Keys() []string {
	t := reflect.TypeFor[Config]()
	keys := make([]string, t.NumField())
	for i := range keys {
		keys[i] = t.Field(i).Tag.Get("yaml")
	}
	return keys
}

// field returns the settable field of key.
func (c *Config) field(key string) (reflect.Value, bool) {
	for i, k := range Keys() {
		if k == key {
			return reflect.ValueOf(c).Elem().Field(i), true
		}
	}
	return reflect.Value{}, false
}

// otherNames are what other trainers call our settings; they only serve to suggest the right key.
var otherNames = map[string]string{
	"learning_rate": "lr", "lr_scheduler_type": "lr_schedule", "max_steps": "steps", "total_training_steps": "steps",
	"batch_size": "prompts_per_step", "train_batch_size": "prompts_per_step", "num_generations": "group_size",
	"beta": "kl_coef", "kl_beta": "kl_coef", "clip": "clip_low", "clip_range": "clip_low", "epsilon": "clip_low",
	"epsilon_high": "clip_high", "max_completion_length": "max_new_tokens", "max_response_length": "max_new_tokens",
	"max_obs_length": "max_obs_tokens", "max_seq_len": "max_context", "max_model_len": "max_context",
	"model_name_or_path": "model", "output_dir": "run_dir", "search_url": "retriever_url", "num_epochs": "inner_epochs",
	"loss_type": "loss_agg", "precision": "dtype", "device": "backend", "gradient_clipping": "max_grad_norm",
}

// unknownKey returns the error for a key that does not exist, with the nearest one that does.
func unknownKey(key string) error {
	spelled := strings.ToLower(strings.ReplaceAll(key, "-", "_"))
	nearest, best := "", math.MaxInt
	offer := func(name, target string) {
		if d := levenshtein.ComputeDistance(spelled, name); d < best {
			nearest, best = target, d
		}
	}
	for _, k := range Keys() {
		offer(k, k)
	}
	for _, name := range slices.Sorted(maps.Keys(otherNames)) {
		offer(name, otherNames[name])
	}
	return fmt.Errorf("unknown key %q; did you mean %s?", key, nearest)
}

// setNode sets key from a YAML node and refuses values that YAML would have to convert.
func (c *Config) setNode(key string, node *yaml.Node) error {
	field, ok := c.field(key)
	if !ok {
		return unknownKey(key)
	}
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	fault := func() error {
		hint := ""
		if field.Kind() == reflect.String && node.Kind == yaml.ScalarNode {
			hint = " in quotes"
			if node.ShortTag() == "!!null" {
				hint = ` ("" for none)`
			}
		}
		return fmt.Errorf("%s: got %s, want %s%s", key, describe(node), want(field), hint)
	}
	if !fits(field.Type(), node) {
		return fault()
	}
	value := reflect.New(field.Type())
	if err := node.Decode(value.Interface()); err != nil {
		return fault()
	}
	field.Set(value.Elem())
	return nil
}

// fits reports whether the node is of the YAML type that a field of type t is written in.
func fits(t reflect.Type, node *yaml.Node) bool {
	if t.Kind() == reflect.Slice {
		if node.Kind != yaml.SequenceNode {
			return false
		}
		for _, element := range node.Content {
			if !fits(t.Elem(), element) {
				return false
			}
		}
		return true
	}
	if node.Kind != yaml.ScalarNode {
		return false
	}
	switch tag := node.ShortTag(); t.Kind() {
	case reflect.String:
		return tag == "!!str"
	case reflect.Bool:
		return tag == "!!bool"
	case reflect.Float64:
		return tag == "!!float" || tag == "!!int"
	default:
		return tag == "!!int"
	}
}

// want says which values a field takes.
func want(field reflect.Value) string {
	switch field.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.Uint64:
		return "a whole number of at least 0"
	case reflect.Slice:
		return "a list of texts such as [a, b]"
	default:
		return "a whole number"
	}
}

// describe says what a YAML node is.
func describe(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a nested mapping"
	case yaml.SequenceNode:
		elements := make([]string, len(node.Content))
		for i, element := range node.Content {
			elements[i] = element.Value
		}
		return fmt.Sprintf("the list [%s]", strings.Join(elements, ", "))
	}
	switch node.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!str":
		return fmt.Sprintf("the text %q", node.Value)
	case "!!bool":
		return "the truth value " + node.Value
	case "!!int", "!!float":
		return "the number " + node.Value
	default:
		return fmt.Sprintf("%q", node.Value)
	}
}

// format writes a field's value on one line of YAML.
func format(field reflect.Value) string {
	switch field.Kind() { // As the YAML library writes them, without an emitter and its buffers for each.
	case reflect.Bool:
		return strconv.FormatBool(field.Bool())
	case reflect.Int, reflect.Int64:
		return strconv.FormatInt(field.Int(), 10)
	case reflect.Float64:
		return strconv.FormatFloat(field.Float(), 'g', -1, 64)
	}
	node := new(yaml.Node)
	if err := node.Encode(field.Interface()); err != nil {
		return fmt.Sprint(field.Interface())
	}
	node.Style = yaml.FlowStyle
	if node.Kind == yaml.ScalarNode {
		node.Style = 0
		if field.Kind() == reflect.String && strings.ContainsAny(node.Value, "\n\r") {
			node.Style = yaml.DoubleQuotedStyle
		}
	}
	text, err := yaml.Marshal(node)
	if err != nil {
		return fmt.Sprint(field.Interface())
	}
	return strings.TrimSuffix(string(text), "\n")
}
