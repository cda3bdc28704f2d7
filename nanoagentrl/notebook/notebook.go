// Package notebook shows figures, tables, progress and Episodes in the cells of a notebook that runs on the GoNB
// kernel. Outside of a kernel the same calls print text or do nothing, so that the code of a cell also runs as a
// program.
//
// What is shown needs no script from anywhere: figures are PNG and SVG in one output, the rest is plain HTML in which
// everything that comes from data is escaped.
//
// Every cell is a program of its own, so a helper that is given a bad value ends it, with a message and exit status 1.
package notebook

import (
	"fmt"
	"io"
	"math"
	"os"

	"github.com/janpfeifer/gonb/gonbui"
	"github.com/janpfeifer/gonb/gonbui/protocol"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/report"
)

// out receives what is shown as text.
var out io.Writer = os.Stdout

// exit ends the program.
var exit = os.Exit

// Active reports whether the program runs in a cell.
func Active() bool { return gonbui.IsNotebook }

// fail ends the program.
func fail(err error) {
	gonbui.Sync()
	fmt.Fprintln(os.Stderr, err)
	exit(1)
}

// Show shows a figure. Outside of a kernel it prints the figure's title.
func Show(f *report.Figure) {
	show(f, "")
	gonbui.Sync()
}

// Plot shows a single plot; see Show.
func Plot(p *plot.Plot) { Show(report.Single(p)) }

// show shows a figure in a new output, or in place of what stands in the output with the id.
func show(f *report.Figure, id string) {
	if !Active() {
		if id == "" {
			fmt.Fprintf(out, "[figure: %s]\n", f.Heading())
		}
		return
	}
	image, err := f.PNG()
	if err != nil {
		fail(err)
		return
	}
	svg, err := f.SVG()
	if err != nil {
		fail(err)
		return
	}
	// A PNG has more pixels than its size on the page; without a width it would be shown too large.
	width := map[string]int{"width": int(f.TotalWidth() / vg.Inch * 96)}
	gonbui.SendData(&protocol.DisplayData{
		DisplayID: id,
		Data:      map[protocol.MIMEType]any{protocol.MIMEImagePNG: image, protocol.MIMEImageSVG: string(svg)},
		Metadata:  map[string]any{string(protocol.MIMEImagePNG): width},
	})
}

// showHTML shows HTML, or the text outside of a kernel.
func showHTML(html, text string) {
	if Active() {
		gonbui.DisplayHTML(html)
		gonbui.Sync()
		return
	}
	fmt.Fprint(out, text)
}

// Equal compares numbers of two sources and says that they are equal within an absolute tolerance, or ends the program
// with the first that are not. NaN equals nothing.
func Equal(what string, got, want []float64, tolerance float64) {
	if len(got) != len(want) {
		fail(fmt.Errorf("%s: %d numbers, and %d to compare them with", what, len(got), len(want)))
		return
	}
	for i := range got {
		if !(math.Abs(got[i]-want[i]) <= tolerance) {
			fail(fmt.Errorf("%s: number %d is %v, not %v", what, i, got[i], want[i]))
			return
		}
	}
	fmt.Fprintf(out, "✓ %s: %d equal to within %g\n", what, len(got), tolerance)
}
