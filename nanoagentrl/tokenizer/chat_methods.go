package tokenizer

import (
	"fmt"
	"strings"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// stringMethods are gonja's string methods, with those done anew that gonja gets wrong: chat templates cut the
// reasoning off an answer with content.split('</think>')[-1].lstrip('\n'), and gonja's lists know no [-1] for a list of
// one.
func stringMethods() *exec.MethodSet[string] {
	methods := map[string]exec.Method[string]{}
	for _, name := range []string{
		"capitalize", "casefold", "endswith", "find", "format", "index", "isalnum", "isalpha", "isdigit",
		"islower", "isnumeric", "isspace", "isupper", "join", "lower", "partition", "removeprefix", "removesuffix",
		"rfind", "rpartition", "rsplit", "splitlines", "startswith", "title", "upper",
	} {
		if method, ok := builtins.Methods.Str.Get(name); ok {
			methods[name] = method
		}
	}
	methods["split"] = methodSplit
	methods["replace"] = methodReplace
	methods["strip"] = methodStrip(strings.TrimFunc)
	methods["lstrip"] = methodStrip(strings.TrimLeftFunc)
	methods["rstrip"] = methodStrip(strings.TrimRightFunc)
	return exec.NewMethodSet(methods)
}

// pythonList is a list that can be indexed from the end.
type pythonList[T any] []T

// GetItem returns the item at key, an int that is counted from the end when negative.
func (l pythonList[T]) GetItem(key any) (*exec.Value, bool) {
	i, ok := key.(int)
	if ok && i < 0 {
		i += len(l)
	}
	if !ok || i < 0 || i >= len(l) {
		return exec.AsValue(nil), false
	}
	return exec.AsValue(l[i]), true
}

// methodSplit is Python's str.split(sep=None, maxsplit=-1).
func methodSplit(s string, _ *exec.Value, params *exec.VarArgs) (any, error) {
	sep, limit := argument(params, 0, "sep"), argument(params, 1, "maxsplit")
	n := -1
	if !limit.IsNil() {
		n = limit.Integer()
	}
	switch {
	case sep.IsNil() && n >= 0:
		return nil, fmt.Errorf("split: maxsplit without a separator is not supported")
	case sep.IsNil():
		return pythonList[string](strings.FieldsFunc(s, isPythonSpace)), nil
	case sep.String() == "":
		return nil, fmt.Errorf("split: empty separator")
	case n >= 0:
		n++ // Go counts the parts, Python the cuts
	}
	return pythonList[string](strings.SplitN(s, sep.String(), n)), nil
}

// methodReplace is Python's str.replace(old, new, count=-1); gonja's insists on the count.
func methodReplace(s string, _ *exec.Value, params *exec.VarArgs) (any, error) {
	if len(params.Args) < 2 {
		return nil, fmt.Errorf("replace: needs two arguments")
	}
	n := -1
	if count := argument(params, 2, "count"); !count.IsNil() {
		n = count.Integer()
	}
	return strings.Replace(s, params.Args[0].String(), params.Args[1].String(), n), nil
}

// methodStrip is Python's str.strip(chars=None) and its one-sided forms.
func methodStrip(trim func(string, func(rune) bool) string) exec.Method[string] {
	return func(s string, _ *exec.Value, params *exec.VarArgs) (any, error) {
		return trim(s, cutset(argument(params, 0, "chars"))), nil
	}
}

// filterTrim is Jinja's trim(chars=None).
func filterTrim(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	return exec.AsValue(strings.TrimFunc(in.String(), cutset(argument(params, 0, "chars"))))
}

// cutset tells the characters in chars, or white space when chars is nil.
func cutset(chars *exec.Value) func(rune) bool {
	if chars.IsNil() {
		return isPythonSpace
	}
	return func(r rune) bool { return strings.ContainsRune(chars.String(), r) }
}

// argument returns an argument given by place or by name, or a nil value.
func argument(params *exec.VarArgs, place int, name string) *exec.Value {
	if place < len(params.Args) {
		return params.Args[place]
	}
	return params.GetKeywordArgument(name, nil)
}
