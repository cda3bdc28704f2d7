package tokenizer

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

var (
	rawBegin      = regexp.MustCompile(`^\{%[-+]?\s*raw\s*(-?)%\}`)
	rawEnd        = regexp.MustCompile(`\{%([-+]?)\s*endraw\s*([-+]?)%\}`)
	generationTag = regexp.MustCompile(`^\s*(end)?generation\s*$`)
)

// trimTemplate rewrites a Jinja template so that its white space stands as it will be printed: what Jinja's lexer
// does under trim_blocks and lstrip_blocks, with the signs of {%- -%} and {%+ +%}, is done here, and the signs are
// gone. Lines keep their numbers, for error messages: newlines that are not printed move into comments, and comments
// lose their words. The {% generation %} marks that transformers uses to mask training text print nothing and become
// empty comments too.
func trimTemplate(source string) (string, error) {
	source = strings.ReplaceAll(source, "\r\n", "\n")
	source = strings.ReplaceAll(source, "\r", "\n")
	source = strings.TrimSuffix(source, "\n")
	t := trimmer{rest: source, lineStart: true}
	for {
		at := nextTag(t.rest)
		if at < 0 {
			t.write(t.rest)
			return t.out.String(), nil
		}
		line := strings.Count(source[:len(source)-len(t.rest)+at], "\n")
		if err := t.tag(at, line); err != nil {
			return "", fmt.Errorf("line %d: %w", line+1, err)
		}
	}
}

// trimmer walks through a template's source.
type trimmer struct {
	out  strings.Builder
	rest string
	// lines counts the newlines in out.
	lines int
	// lineStart says that the last tag took the newline after it, so that rest begins a line.
	lineStart bool
}

func (t *trimmer) write(s string) {
	t.out.WriteString(s)
	t.lines += strings.Count(s, "\n")
}

// nextTag returns the place of the next {{, {% or {#, or -1.
func nextTag(s string) int {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '{' && (s[i+1] == '{' || s[i+1] == '%' || s[i+1] == '#') {
			return i
		}
	}
	return -1
}

// tag writes the text before the tag at rest[at:], which stands after the given number of newlines in the source, and
// the tag, and moves behind it.
func (t *trimmer) tag(at, line int) error {
	data, tag := t.rest[:at], t.rest[at:]
	kind := tag[1]
	body := tag[2:]
	before := byte(0)
	if body != "" && (body[0] == '-' || body[0] == '+') {
		before, body = body[0], body[1:]
	}
	t.write(t.trimBefore(data, before, kind != '{'))
	if line > t.lines {
		t.write("{#" + strings.Repeat("\n", line-t.lines) + "#}")
	}
	if m := rawBegin.FindStringSubmatch(tag); m != nil {
		return t.raw(tag[len(m[0]):], m[1] == "-")
	}
	length, err := tagLength(body, kind)
	if err != nil {
		return err
	}
	body, rest := body[:length], body[length+2:]
	after := byte(0)
	if n := len(body); n > 0 && (body[n-1] == '-' || body[n-1] == '+' && kind != '{') {
		after, body = body[n-1], body[:n-1]
	}
	switch {
	case kind == '#', kind == '%' && generationTag.MatchString(body):
		t.write("{##}")
	case kind == '%':
		t.write("{%" + body + "%}")
	default:
		t.write("{{" + body + "}}")
	}
	t.trimAfter(rest, after, kind != '{')
	return nil
}

// raw copies a {% raw %} block; body is what follows its opening tag.
func (t *trimmer) raw(body string, trimLeft bool) error {
	end := rawEnd.FindStringSubmatchIndex(body)
	if end == nil {
		return fmt.Errorf("{%% raw %%} without {%% endraw %%}")
	}
	data := body[:end[0]]
	if trimLeft {
		data = strings.TrimLeftFunc(data, isPythonSpace)
	}
	t.lineStart = false
	data = t.trimBefore(data, signAt(body, end[2], end[3]), true)
	t.write("{%raw%}" + data + "{%endraw%}")
	t.trimAfter(body[end[1]:], signAt(body, end[4], end[5]), true)
	return nil
}

func signAt(s string, begin, end int) byte {
	if begin == end {
		return 0
	}
	return s[begin]
}

// trimBefore returns data as it stands before a tag with the given sign; block is false for {{.
func (t *trimmer) trimBefore(data string, sign byte, block bool) string {
	if sign == '-' {
		return strings.TrimRightFunc(data, isPythonSpace)
	}
	if line := strings.LastIndexByte(data, '\n') + 1; sign != '+' && block && (line > 0 || t.lineStart) {
		if strings.TrimLeftFunc(data[line:], isPythonSpace) == "" {
			return data[:line]
		}
	}
	return data
}

// trimAfter sets rest to what follows a tag that ended with the given sign.
func (t *trimmer) trimAfter(rest string, sign byte, block bool) {
	t.rest = rest
	switch {
	case sign == '-':
		t.rest = strings.TrimLeftFunc(rest, isPythonSpace)
	case sign == 0 && block:
		t.rest = strings.TrimPrefix(rest, "\n")
	}
	taken := rest[:len(rest)-len(t.rest)]
	t.lineStart = strings.HasSuffix(taken, "\n")
}

// tagLength returns the length of a tag's body, up to its two closing characters. An end inside a string or inside
// brackets does not count.
func tagLength(body string, kind byte) (int, error) {
	closing := map[byte]string{'{': "}}", '%': "%}", '#': "#}"}[kind]
	depth := 0
	for i := 0; i < len(body); i++ {
		if depth == 0 && strings.HasPrefix(body[i:], closing) {
			return i, nil
		}
		if kind == '#' {
			continue
		}
		switch c := body[i]; c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case '\'', '"':
			for i++; i < len(body) && body[i] != c; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		}
	}
	return 0, fmt.Errorf("{%c without %s", kind, closing)
}

// isPythonSpace reports whether Python's str.isspace and \s count r as white space.
func isPythonSpace(r rune) bool {
	return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f
}
