package ablation

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/atomicfile"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/report"
)

// Section returns what a document says about a complete grid, in Markdown: the question, the command that made it, what
// was varied, and the table. figure is the path of the figure as seen from the document, with its data beside it; empty
// for none.
func (g *Grid) Section(results []*Result, command, figure string) string {
	s := g.Suite
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n%s\n\n```sh\n%s\n```\n\n", s.Title, strings.TrimSpace(s.Question), command)
	fmt.Fprintf(&b, "%s\n\n", g.terms(results))
	for _, v := range s.Variants {
		set := "as the base"
		if len(v.Set) > 0 {
			set = "`" + strings.Join(v.Set, " ") + "`"
		}
		fmt.Fprintf(&b, "- %s: %s\n", v.Name, set)
	}
	fmt.Fprintf(&b, "\n%s\n", Table(s, results))
	if figure != "" {
		fmt.Fprintf(&b, "![%s](%s)\n\nData: [%s](%s)\n", s.Title, figure, filepath.Base(dataOf(figure)), dataOf(figure))
	}
	return b.String()
}

// dataOf returns the path of the data beside a figure.
func dataOf(figure string) string { return strings.TrimSuffix(figure, filepath.Ext(figure)) + ".csv" }

// terms says in a sentence or two what the runs have in common.
func (g *Grid) terms(results []*Result) string {
	s := g.Suite
	shared := slices.Concat(s.Set, g.Set)
	text := fmt.Sprintf("Each variant with %d %s, from `%s`", g.Seeds, plural(g.Seeds, "seed"), s.Base)
	if len(shared) > 0 {
		text += " with `" + strings.Join(shared, " ") + "`"
	}
	var seconds []float64
	var devices []string
	episodes := 0
	for _, r := range results {
		seconds = append(seconds, r.Seconds)
		if !slices.Contains(devices, r.Device) {
			devices = append(devices, r.Device)
		}
		episodes = max(episodes, r.After["sampled"].Episodes)
	}
	mean, _ := report.MeanInterval(seconds)
	return text + fmt.Sprintf(". Measured on %d test questions, one episode each. %s; %.0f s of training a run on "+
		"average.", episodes, strings.Join(devices, " and "), mean)
}

// The lines between which a section of a document is made.
func openMark(suite string) string  { return fmt.Sprintf("<!-- suite:%s -->", suite) }
func closeMark(suite string) string { return fmt.Sprintf("<!-- /suite:%s -->", suite) }

// CheckDoc returns an error if a document has no place for a suite, and says how to make one.
func CheckDoc(path, suite string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("docs: %w", err)
	}
	_, _, err = place(path, string(text), suite)
	return err
}

// place returns where in a document the section of a suite begins and ends.
func place(path, text, suite string) (begin, end int, err error) {
	opened, closed := openMark(suite), closeMark(suite)
	if strings.Count(text, opened) != 1 || strings.Count(text, closed) != 1 {
		return 0, 0, fmt.Errorf("%s: want the lines %s and %s once each, for the section to stand between", path, opened,
			closed)
	}
	begin, end = strings.Index(text, opened)+len(opened), strings.Index(text, closed)
	if begin > end {
		return 0, 0, fmt.Errorf("%s: %s stands before %s", path, closed, opened)
	}
	return begin, end, nil
}

// UpdateDoc puts a section between the marks of a suite and leaves everything else as it is.
func UpdateDoc(path, suite, section string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("docs: %w", err)
	}
	begin, end, err := place(path, string(text), suite)
	if err != nil {
		return err
	}
	whole := string(text[:begin]) + "\n" + strings.TrimSpace(section) + "\n" + string(text[end:])
	return atomicfile.Write(path, []byte(whole))
}
