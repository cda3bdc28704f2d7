package tokenizer

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/parser"
)

// chatEnvironment returns gonja's built-ins with transformers' tojson, Python's idea of white space in trim, and
// without the statements that read other templates.
func chatEnvironment() *exec.Environment {
	filters := exec.NewFilterSet(map[string]exec.FilterFunction{}).Update(builtins.Filters).
		Update(exec.NewFilterSet(map[string]exec.FilterFunction{"tojson": filterToJSON, "trim": filterTrim}))
	statements := map[string]parser.ControlStructureParser{}
	for _, name := range []string{
		"if", "for", "set", "macro", "call", "filter", "with", "raw", "do", "break", "continue",
	} {
		if statement, ok := builtins.ControlStructures.Get(name); ok {
			statements[name] = statement
		}
	}
	methods := builtins.Methods
	methods.Str = stringMethods()
	return &exec.Environment{
		Context:           exec.EmptyContext().Update(builtins.GlobalFunctions).Update(builtins.GlobalVariables),
		Filters:           filters,
		Tests:             builtins.Tests,
		ControlStructures: exec.NewControlStructureSet(statements),
		Methods:           methods,
	}
}

// filterToJSON is transformers' tojson: Python's json.dumps with ensure_ascii off. Of its options it takes indent.
func filterToJSON(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	indent := -1
	for name, value := range params.KwArgs {
		switch name {
		case "indent":
			if !value.IsNil() {
				indent = value.Integer()
			}
		case "ensure_ascii":
			if value.IsTrue() {
				return exec.AsValue(fmt.Errorf("tojson: ensure_ascii=true is not supported"))
			}
		default:
			return exec.AsValue(fmt.Errorf("tojson: option %s is not supported", name))
		}
	}
	out, err := appendPythonJSON(nil, in, indent, 0)
	if err != nil {
		return exec.AsValue(fmt.Errorf("tojson: %w", err))
	}
	return exec.AsSafeValue(string(out))
}

// appendPythonJSON appends value as json.dumps writes it: ", " and ": " between items, or one item a line with
// indent >= 0; depth counts the enclosing collections.
func appendPythonJSON(dst []byte, value *exec.Value, indent, depth int) ([]byte, error) {
	value = exec.ToValue(value)
	switch {
	case value.IsNil():
		return append(dst, "null"...), nil
	case value.IsError():
		return dst, value
	case value.IsBool():
		return strconv.AppendBool(dst, value.IsTrue()), nil
	case value.IsNumber():
		return append(dst, value.String()...), nil
	case value.IsString():
		return appendJSONString(dst, value.String()), nil
	case value.IsDict(), value.IsList():
		return appendPythonCollection(dst, value, indent, depth)
	}
	return dst, fmt.Errorf("cannot write a %T", value.Interface())
}

// appendJSONString appends s in quotes, with no more escapes than JSON needs.
func appendJSONString(dst []byte, s string) []byte {
	short := map[rune]byte{'"': '"', '\\': '\\', '\n': 'n', '\r': 'r', '\t': 't', '\b': 'b', '\f': 'f'}
	dst = append(dst, '"')
	for _, r := range s {
		switch c, ok := short[r]; {
		case ok:
			dst = append(dst, '\\', c)
		case r < ' ':
			dst = fmt.Appendf(dst, `\u%04x`, r)
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

func appendPythonCollection(dst []byte, value *exec.Value, indent, depth int) ([]byte, error) {
	open, shut, dict := byte('['), byte(']'), value.IsDict()
	if dict {
		open, shut = '{', '}'
	}
	newline := func(depth int) {
		if indent >= 0 {
			dst = append(dst, '\n')
			dst = append(dst, strings.Repeat(" ", indent*depth)...)
		}
	}
	dst = append(dst, open)
	var err error
	value.Iterate(func(i, n int, key, item *exec.Value) bool {
		if i > 0 {
			dst = append(dst, ',')
			if indent < 0 {
				dst = append(dst, ' ')
			}
		}
		newline(depth + 1)
		if dict {
			if dst, err = appendPythonJSON(dst, exec.AsValue(key.String()), indent, depth+1); err != nil {
				return false
			}
			dst = append(dst, ": "...)
		} else {
			item = key
		}
		dst, err = appendPythonJSON(dst, item, indent, depth+1)
		if i == n-1 {
			newline(depth)
		}
		return err == nil
	}, func() {})
	return append(dst, shut), err
}

// strftime writes t by a C format. Unknown directives stay as they are.
func strftime(t time.Time, format string) string {
	layouts := map[byte]string{
		'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'd': "02", 'H': "15", 'I': "03", 'j': "002", 'm': "01",
		'M': "04", 'p': "PM", 'S': "05", 'y': "06", 'Y': "2006", 'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06",
		'R': "15:04", 'e': "_2", 'Z': "MST", 'z': "-0700", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06",
		'X': "15:04:05",
	}
	var out strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			out.WriteByte(format[i])
			continue
		}
		i++
		verb := format[i]
		layout, ok := layouts[verb]
		switch {
		case verb == '%':
			out.WriteByte('%')
		case verb == '-' && i+1 < len(format) && layouts[format[i+1]] != "":
			i++ // glibc: no padding
			out.WriteString(trimPadding(t.Format(layouts[format[i]])))
		case ok:
			out.WriteString(t.Format(layout))
		default:
			out.WriteByte('%')
			out.WriteByte(verb)
		}
	}
	return out.String()
}

func trimPadding(number string) string {
	if trimmed := strings.TrimLeft(number, "0 "); trimmed != "" {
		return trimmed
	}
	return "0"
}
