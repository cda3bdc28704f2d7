package ablation

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/atomicfile"
)

// The files that Write makes.
const (
	TableName  = "table.md"
	FigureName = "curves.png"
	CSVName    = "results.csv"
)

// Write writes table, figure and CSV of the results so far into a folder.
func (g *Grid) Write(dir string, results []*Result) error {
	if err := g.writeFigure(filepath.Join(dir, FigureName), filepath.Join(dir, CSVName), results); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, TableName), []byte(Table(g.Suite, results)))
}

func (g *Grid) writeFigure(figure, data string, results []*Result) error {
	f, err := Figure(g.Suite, results)
	if err != nil {
		return err
	}
	image, err := f.PNG()
	if err != nil {
		return err
	}
	rows, err := CSV(g.Suite, results)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(figure), 0o755); err != nil {
		return fmt.Errorf("figure: %w", err)
	}
	return errors.Join(atomicfile.Write(figure, image), atomicfile.Write(data, rows))
}

// Publish writes figure and CSV of a complete grid into a folder, named after the suite, and makes its section of a
// document anew, if doc is not empty. command is the one that made the grid. It returns the files it wrote.
func (g *Grid) Publish(results []*Result, figures, doc, command string) (paths []string, err error) {
	figure := filepath.Join(figures, g.Suite.Name+".png")
	if err := g.writeFigure(figure, dataOf(figure), results); err != nil {
		return nil, err
	}
	paths = []string{figure, dataOf(figure)}
	if doc == "" {
		return paths, nil
	}
	seen, err := relativeTo(doc, figure)
	if err != nil {
		return paths, err
	}
	if err := UpdateDoc(doc, g.Suite.Name, g.Section(results, command, seen)); err != nil {
		return paths, err
	}
	return append(paths, doc), nil
}

// relativeTo returns a path as seen from a document, with slashes.
func relativeTo(doc, path string) (string, error) {
	from, err := filepath.Abs(filepath.Dir(doc))
	if err != nil {
		return "", err
	}
	to, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	seen, err := filepath.Rel(from, to)
	return filepath.ToSlash(seen), err
}

// List prints the question, the variants with what they change, and how far each run is.
func (g *Grid) List(out io.Writer) error {
	s := g.Suite
	fmt.Fprintf(out, "%s\n%s\n\n", s.Title, strings.TrimSpace(s.Question))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "variant\tseed\tstate\tsettings")
	complete := 0
	for _, cell := range g.Cells {
		p, err := cell.Progress()
		state := fmt.Sprintf("%d steps to make", cell.Config.Steps)
		switch {
		case err != nil:
			state, _, _ = strings.Cut(err.Error(), "\n")
		case p.Result != nil:
			state = fmt.Sprintf("complete, EM %s -> %s", percentOf(p.Result.Before, "sampled"),
				percentOf(p.Result.After, "sampled"))
			complete++
		case p.Step > 0:
			state = fmt.Sprintf("at step %d of %d", p.Step, cell.Config.Steps)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", cell.Variant, cell.Seed, state, strings.Join(s.setOf(cell.Variant), " "))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%d of %d runs are complete; they are in %s\n", complete, len(g.Cells), g.Dir)
	return err
}

// setOf returns the overrides of a variant.
func (s *Suite) setOf(variant string) []string {
	for _, v := range s.Variants {
		if v.Name == variant {
			return v.Set
		}
	}
	return nil
}
