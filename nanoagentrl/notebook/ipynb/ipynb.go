// Package ipynb reads notebooks and finds what is wrong with them. Jupyter's own tools call a notebook on the GoNB
// kernel a success when the program of a cell panicked or exited with an error: each cell is a program, and the kernel
// only writes "exit status 2" to the cell's standard error.
package ipynb

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"image/png"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Notebook is a notebook in nbformat 4, as far as it is looked at.
type Notebook struct {
	Path     string `json:"-"`
	Cells    []Cell `json:"cells"`
	Metadata struct {
		Kernel struct {
			Name string `json:"name"`
		} `json:"kernelspec"`
	} `json:"metadata"`
	Format int `json:"nbformat"`
}

// Cell is a cell of a notebook.
type Cell struct {
	Type     string `json:"cell_type"`
	Source   Text   `json:"source"`
	Count    *int   `json:"execution_count"`
	Metadata struct {
		Tags []string `json:"tags"`
	} `json:"metadata"`
	Outputs []Output `json:"outputs"`
}

// Output is one output of a cell.
type Output struct {
	Type  string          `json:"output_type"`
	Name  string          `json:"name"`
	Text  Text            `json:"text"`
	Data  map[string]Text `json:"data"`
	Value string          `json:"evalue"`
}

// Varies is the tag of cells whose text differs from run to run, such as times.
const Varies = "varies"

// Text is a string, or a list of strings that belong together.
type Text string

// UnmarshalJSON reads either form. Other values, which outputs of type application/json have, are kept as they stand.
func (t *Text) UnmarshalJSON(data []byte) error {
	var lines []string
	if json.Unmarshal(data, &lines) == nil {
		*t = Text(strings.Join(lines, ""))
		return nil
	}
	var text string
	if json.Unmarshal(data, &text) != nil {
		text = string(data)
	}
	*t = Text(text)
	return nil
}

// Read reads a notebook.
func Read(path string) (*Notebook, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("ipynb: %w", err)
	}
	n := &Notebook{Path: path}
	if err := json.Unmarshal(data, n); err != nil {
		return nil, fmt.Errorf("ipynb: %s: %w", path, err)
	}
	if n.Format != 4 {
		return nil, fmt.Errorf("ipynb: %s: nbformat is %d, want 4", path, n.Format)
	}
	return n, nil
}

// code calls f for each code cell with its place, counted from 1.
func (n *Notebook) code(f func(place int, c *Cell)) {
	for i := range n.Cells {
		if n.Cells[i].Type == "code" {
			f(i+1, &n.Cells[i])
		}
	}
}

// badEnd is what GoNB writes to standard error when the program of a cell, or a shell command, ended badly: the error
// of os/exec, on a line of its own; or a failure of its own.
var badEnd = regexp.MustCompile(`(?m)^(exit status [1-9]\d*|signal: .+|GoNB Error:)`)

// RunFaults returns what went wrong in a run of the notebook: cells that did not run, error outputs, programs that
// ended badly, images that are none.
func (n *Notebook) RunFaults() (faults []string) {
	n.code(func(place int, c *Cell) {
		add := func(format string, args ...any) {
			faults = append(faults, fmt.Sprintf("cell %d: ", place)+fmt.Sprintf(format, args...))
		}
		if c.Count == nil && strings.TrimSpace(string(c.Source)) != "" {
			add("was not run")
		}
		for _, o := range c.Outputs {
			if o.Type == "error" {
				add("error: %s%s", o.Value, c.compilerMessages())
			}
			if o.Type == "stream" && o.Name == "stderr" {
				if found := badEnd.FindString(string(o.Text)); found != "" {
					add("its program ended with %q", found)
				}
			}
			if image, ok := o.Data["image/png"]; ok && !isPNG(string(image)) {
				add("an image is no PNG")
			}
		}
	})
	return faults
}

// compilerMessage finds what the compiler says in the page that GoNB makes of it.
var compilerMessage = regexp.MustCompile(`class="gonb-err-location">([^<]*)</span>([^\n<]*)`)

func (c *Cell) compilerMessages() (lines string) {
	for _, o := range c.Outputs {
		for _, found := range compilerMessage.FindAllStringSubmatch(string(o.Data["text/html"]), -1) {
			lines += "\n  " + html.UnescapeString(strings.TrimSpace(found[1])+found[2])
		}
	}
	return lines
}

func isPNG(encoded string) bool {
	encoded = strings.Join(strings.Fields(encoded), "")
	config, err := png.DecodeConfig(base64.NewDecoder(base64.StdEncoding, strings.NewReader(encoded)))
	return err == nil && config.Width > 1 && config.Height > 1
}

var (
	// packageLine finds lines that GoNB drops: it takes every line that begins so for a package clause.
	packageLine = regexp.MustCompile(`(?m)^\s*package\s|^package`)
	// fromOutside finds what a browser would fetch or run.
	fromOutside = regexp.MustCompile(`(?i)<script|<link|<iframe|src\s*=\s*["']?(https?:)?//`)
)

// FormFaults returns what is wrong with a notebook as it is kept: another kernel, a package line, outputs that need a
// script or the network, no image.
func (n *Notebook) FormFaults(kernel string) (faults []string) {
	if n.Metadata.Kernel.Name != kernel {
		faults = append(faults, fmt.Sprintf("its kernel is %q, not %q", n.Metadata.Kernel.Name, kernel))
	}
	images := 0
	n.code(func(place int, c *Cell) {
		if packageLine.MatchString(string(c.Source)) {
			faults = append(faults, fmt.Sprintf("cell %d: it has a line that begins with \"package\", which GoNB drops", place))
		}
		for _, o := range c.Outputs {
			for kind, text := range o.Data {
				if strings.HasPrefix(kind, "image/") {
					images++
				}
				if kind == "text/html" && fromOutside.MatchString(string(text)) || kind == "text/javascript" ||
					kind == "application/javascript" {
					faults = append(faults, fmt.Sprintf("cell %d: an output needs a script or the network", place))
				}
			}
		}
	})
	if images == 0 {
		faults = append(faults, "no cell shows an image")
	}
	return faults
}

// Compare returns how a fresh run differs from the notebook as it is kept: other code, images that are missing, and
// other text in cells without the tag Varies.
func Compare(kept, fresh *Notebook) (faults []string) {
	if len(kept.Cells) != len(fresh.Cells) {
		return []string{fmt.Sprintf("%d cells instead of %d", len(fresh.Cells), len(kept.Cells))}
	}
	kept.code(func(place int, c *Cell) {
		f := &fresh.Cells[place-1]
		if c.Source != f.Source {
			faults = append(faults, fmt.Sprintf("cell %d: other code", place))
			return
		}
		if want, got := c.images(), f.images(); !slices.Equal(want, got) {
			faults = append(faults, fmt.Sprintf("cell %d: images %v instead of %v", place, got, want))
		}
		if want, got := c.text(), f.text(); want != got && !slices.Contains(c.Metadata.Tags, Varies) {
			faults = append(faults, fmt.Sprintf("cell %d: its text is not the one that is kept:\n%s", place, difference(want,
				got)))
		}
	})
	return faults
}

// images returns the kinds of images that a cell shows, one output after the other.
func (c *Cell) images() (all []string) {
	for _, o := range c.Outputs {
		var kinds []string
		for kind := range o.Data {
			if strings.HasPrefix(kind, "image/") {
				kinds = append(kinds, kind)
			}
		}
		slices.Sort(kinds)
		all = append(all, kinds...)
	}
	return all
}

// text returns what a cell printed and then its HTML, since the two arrive in varying order.
func (c *Cell) text() string {
	var printed, page strings.Builder
	for _, o := range c.Outputs {
		printed.WriteString(string(o.Text))
		page.WriteString(string(o.Data["text/html"]))
	}
	return printed.String() + page.String()
}

// difference shows the first line that differs.
func difference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	line := func(lines []string) string {
		if i >= len(lines) {
			return "(nothing)"
		}
		return lines[i]
	}
	return fmt.Sprintf("  kept:  %s\n  fresh: %s", line(a), line(b))
}
