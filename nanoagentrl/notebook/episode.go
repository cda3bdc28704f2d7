package notebook

import (
	"fmt"
	"html"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// Decoder gives the bytes of a token; a tokenizer.Tokenizer is one.
type Decoder interface {
	Bytes(id int) []byte
}

// Episode shows an episode token by token, coloured by mask: what the policy wrote (mask 1, in the loss), the prompt,
// and what the environment wrote (mask 0). A token under the mouse tells its place, id and log-probability. Outside of
// a kernel it prints the text in brackets: [policy], (prompt), {environment}.
func Episode(title string, tok Decoder, e *episode.Episode) {
	showHTML(episodeHTML(title, tok, e), episodeText(title, tok, e))
}

// style is how the tokens of a writer look: colours that stay apart with every kind of colour blindness, and an
// underline for the policy's.
var style = map[episode.Source]struct{ name, css, open, close string }{
	episode.Policy: {"policy (mask 1)", "background:#cce3f2;color:#10283a;border-bottom:2px solid #0072b2", "[", "]"},
	episode.Prompt: {"prompt (mask 0)", "background:#eeeeee;color:#444444", "(", ")"},
	episode.Environment: {"environment (mask 0)", "background:#fbe3c8;color:#4a2c06",
		"{", "}"},
}

func episodeHTML(title string, tok Decoder, e *episode.Episode) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<div style="font-size:13px;line-height:1.9"><div><b>%s</b> %s</div><div>`,
		html.EscapeString(title), html.EscapeString(outcome(e)))
	for _, source := range []episode.Source{episode.Prompt, episode.Policy, episode.Environment} {
		fmt.Fprintf(&b, `<span style="%s;padding:1px 6px;margin-right:6px">%s: %d tokens</span>`, style[source].css,
			style[source].name, e.CountTokens(source))
	}
	b.WriteString(`</div><div style="font-family:monospace;white-space:pre-wrap;margin-top:6px">`)
	for i, id := range e.IDs {
		tip := fmt.Sprintf("token %d, id %d", i, id)
		if e.Sources[i] == episode.Policy {
			tip += fmt.Sprintf(", log-probability %.4f", e.LogProbs[i])
		}
		fmt.Fprintf(&b, `<span title="%s" style="%s;margin-right:1px">%s</span>`, tip, style[e.Sources[i]].css,
			html.EscapeString(visible(tok.Bytes(id))))
	}
	b.WriteString("</div></div>")
	return b.String()
}

func episodeText(title string, tok Decoder, e *episode.Episode) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n", title, outcome(e))
	for i, id := range e.IDs {
		look := style[e.Sources[i]]
		if i == 0 || e.Sources[i-1] != e.Sources[i] {
			b.WriteString(look.open)
		}
		b.WriteString(strings.ToValidUTF8(string(tok.Bytes(id)), "\uFFFD"))
		if i+1 == len(e.IDs) || e.Sources[i+1] != e.Sources[i] {
			b.WriteString(look.close)
		}
	}
	b.WriteByte('\n')
	return b.String()
}

// outcome tells how an episode ended and what it was worth.
func outcome(e *episode.Episode) string {
	text := fmt.Sprintf("stop: %s, reward %.3g", e.Stop, e.Reward)
	for _, part := range slices.Sorted(maps.Keys(e.Parts)) {
		text += fmt.Sprintf(", %s %.3g", part, e.Parts[part])
	}
	return text + ", gold: " + strings.Join(e.Answers, " | ")
}

// visible returns the text of a token. Line breaks are marked, and bytes that are not a whole character are written as
// numbers.
func visible(token []byte) string {
	var b strings.Builder
	for len(token) > 0 {
		r, size := utf8.DecodeRune(token)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, "\\x%02x", token[0])
		case r == '\n':
			b.WriteString("⏎\n")
		default:
			b.Write(token[:size])
		}
		token = token[size:]
	}
	return b.String()
}
