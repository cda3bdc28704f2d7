package notebook

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent/agenttest"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/report"
)

// captured runs f outside of a kernel and returns what it printed and the exit status, 0 if it went on.
func captured(t *testing.T, f func()) (text string, code int) {
	t.Helper()
	require.False(t, Active())
	var buffer bytes.Buffer
	wasOut, wasExit := out, exit
	out, exit = &buffer, func(c int) { code = c }
	defer func() { out, exit = wasOut, wasExit }()
	f()
	return buffer.String(), code
}

func curve() *report.Figure {
	p := report.NewPlot("A line", "x", "y")
	report.AddLine(p, "line", 0, report.Points{X: []float64{0, 1}, Y: []float64{0, 1}})
	return report.Single(p)
}

func TestOutsideOfAKernelTextIsPrinted(t *testing.T) {
	text, _ := captured(t, func() {
		Show(curve())
		Table([]string{"name", "value"}, []any{"a", 1.5}, []any{"b<", 2})
		p := NewProgress()
		p.Set(1, 4, "first")
		p.Done(4, 4, "done")
		l := NewLivePlot()
		l.Update(func() (*report.Figure, error) { panic("nothing is drawn") })
		l.Done(curve())
	})
	assert.Equal(t, "[figure: A line]\nname  value\na     1.5\nb<    2\n4 of 4  done\n[figure: A line]\n", text)
}

func TestHTMLIsEscaped(t *testing.T) {
	const evil = `<script>alert("x")</script>`
	table := tableHTML([]string{evil}, [][]any{{evil, 1.0 / 3}})
	assert.NotContains(t, table, "<script")
	assert.Contains(t, table, "&lt;script&gt;")
	assert.Contains(t, table, `text-align:right">0.3333<`)
	assert.NotContains(t, progressHTML(1, 2, evil), "<script")

	tok := agenttest.NewTokenizer("<search>", "</search>", "<script>")
	e := &episode.Episode{Answers: []string{evil}, Stop: "<b>", Parts: map[string]float64{"<i>": 1}}
	e.Append(episode.Prompt, tok.Encode(evil), nil)
	e.Append(episode.Policy, tok.Encode("<search>q</search>"), []float32{-0.5, -1.25, 0})
	page := episodeHTML(evil, tok, e)
	for _, tag := range []string{"<script", "<search", "<b>s", "<i>"} {
		assert.NotContains(t, page, tag)
	}
	assert.Contains(t, page, "&lt;search&gt;")
}

func TestEpisodeIsColouredByMask(t *testing.T) {
	tok := agenttest.NewTokenizer("what", "<search>", "</search>", "passage")
	e := &episode.Episode{Answers: []string{"gold"}, Stop: episode.StopAnswer, Reward: 1,
		Parts: map[string]float64{"em": 1}}
	e.Append(episode.Prompt, tok.Encode("what\n"), nil)
	e.Append(episode.Policy, tok.Encode("<search>é</search>"), []float32{-0.5, 0, 0, -2})
	e.Append(episode.Environment, tok.EncodePlain("passage"), nil)
	page := episodeHTML("before", tok, e)
	spans := strings.Split(page, "<span ")
	tokens := spans[len(spans)-len(e.IDs):]
	for i, mask := range e.Mask() {
		assert.Equal(t, mask == 1, strings.Contains(tokens[i], style[episode.Policy].css), "token %d", i)
		assert.Equal(t, mask == 1, strings.Contains(tokens[i], "log-probability"), "token %d", i)
	}
	assert.Contains(t, tokens[2], "log-probability -0.5000")
	assert.Contains(t, tokens[3], `>\xc3</span>`, "half a character is shown as a byte")
	assert.Contains(t, tokens[1], "⏎")
	assert.Contains(t, tokens[6], style[episode.Environment].css)
	assert.Contains(t, page, "policy (mask 1): 4 tokens")
	assert.Contains(t, page, "stop: answer, reward 1, em 1, gold: gold")

	text, _ := captured(t, func() { Episode("before", tok, e) })
	assert.Equal(t, "before  stop: answer, reward 1, em 1, gold: gold\n(what\n)[<search>\uFFFD\uFFFD</search>]{passage}\n",
		text)
}

func TestNumbersInTables(t *testing.T) {
	for want, value := range map[string]any{"0.3333": 1.0 / 3, "2": 2.0, "-1": -1, "0": math.Copysign(0, -1), "–": math.NaN(),
		"1.234e+06": 1234321.0,
		"1e-05":     1e-5, "em": "em", "true": true, "0.5": float32(0.5)} {
		text, _ := cell(value)
		assert.Equal(t, want, text)
	}
}

func TestDifferentNumbersEndTheProgram(t *testing.T) {
	text, code := captured(t, func() { Equal("advantages", []float64{1.5, -0.5}, []float64{1.5, -0.5 + 1e-7}, 1e-6) })
	assert.Equal(t, 0, code)
	assert.Equal(t, "✓ advantages: 2 equal to within 1e-06\n", text)
	for _, got := range [][]float64{{1}, {1, 2, 3}, {1, 2.1}, {1, math.NaN()}} {
		text, code = captured(t, func() { Equal("x", got, []float64{1, 2}, 1e-6) })
		assert.Equal(t, 1, code, got)
		assert.Empty(t, text)
	}
	_, code = captured(t, func() { Equal("x", []float64{math.NaN()}, []float64{math.NaN()}, 1) })
	assert.Equal(t, 1, code, "NaN equals nothing")
}

func TestUpdatesAreThrottled(t *testing.T) {
	var th throttle
	now := time.Now()
	assert.True(t, th.ready(now))
	assert.False(t, th.ready(now.Add(pause/2)))
	assert.True(t, th.ready(now.Add(pause)))
}
