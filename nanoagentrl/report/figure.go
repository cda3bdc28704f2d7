// Package report draws figures: learning curves of runs with their intervals over seeds, and the plots of notebooks, in
// one style, as PNG and SVG, with the data as tidy CSV beside them.
package report

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// dpi is the resolution of PNG files, in dots per inch.
const dpi = 150

// Key is an entry of a figure's legend.
type Key struct {
	Name  string
	Color color.Color
}

// Figure is one or more plots with a heading.
type Figure struct {
	// Title and Subtitle stand above the plots; either may be empty.
	Title, Subtitle string
	// Keys name the colours that all plots share, in a line below the subtitle.
	Keys []Key
	// Plots are laid out row by row in Columns columns; 0 means one row.
	Plots   []*plot.Plot
	Columns int
	// Width and Height are the size of one plot; 0 means 4.5 by 2.6 inches.
	Width, Height vg.Length
}

// Single returns a figure of one plot, whose own title is its heading.
func Single(p *plot.Plot) *Figure {
	return &Figure{Plots: []*plot.Plot{p}, Width: 5.5 * vg.Inch, Height: 3.4 * vg.Inch}
}

// Heading returns the title, or that of the first plot.
func (f *Figure) Heading() string {
	if f.Title == "" && len(f.Plots) > 0 {
		return f.Plots[0].Title.Text
	}
	return f.Title
}

// TotalWidth returns the width of the whole figure.
func (f *Figure) TotalWidth() vg.Length {
	w, _, _ := f.size()
	return w
}

// PNG draws the figure as a PNG image.
func (f *Figure) PNG() ([]byte, error) {
	w, h, err := f.size()
	if err != nil {
		return nil, err
	}
	canvas := vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(dpi))
	if err := f.draw(draw.New(canvas)); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(&out); err != nil {
		return nil, fmt.Errorf("report: PNG: %w", err)
	}
	return out.Bytes(), nil
}

// SVG draws the figure as an SVG document. It names its fonts and does not hold them.
func (f *Figure) SVG() ([]byte, error) {
	w, h, err := f.size()
	if err != nil {
		return nil, err
	}
	canvas := vgsvg.New(w, h)
	if err := f.draw(draw.New(canvas)); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, fmt.Errorf("report: SVG: %w", err)
	}
	fallback := []byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")
	return bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans;"), fallback), nil
}

// Save writes the figure to path with the endings .png and .svg, whichever of them path has, and makes its folder.
func (f *Figure) Save(path string) error {
	base := withoutEnding(path)
	if err := os.MkdirAll(filepath.Dir(base), 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for ending, render := range map[string]func() ([]byte, error){".png": f.PNG, ".svg": f.SVG} {
		image, err := render()
		if err != nil {
			return err
		}
		if err := os.WriteFile(base+ending, image, 0o644); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return nil
}

// withoutEnding cuts the ending of a figure or its data from a path.
func withoutEnding(path string) string {
	switch ending := filepath.Ext(path); strings.ToLower(ending) {
	case ".png", ".svg", ".csv":
		return strings.TrimSuffix(path, ending)
	}
	return path
}

const (
	margin    = 8 * vg.Length(1) // points
	titleLine = 20 * vg.Length(1)
	textLine  = 14 * vg.Length(1)
	headGap   = 6 * vg.Length(1)
)

func (f *Figure) grid() (rows, columns int) {
	columns = f.Columns
	if columns <= 0 {
		columns = len(f.Plots)
	}
	return (len(f.Plots) + columns - 1) / columns, columns
}

// headHeight is the height of title, subtitle and keys.
func (f *Figure) headHeight() vg.Length {
	height := vg.Length(0)
	if f.Title != "" {
		height += titleLine
	}
	if f.Subtitle != "" {
		height += textLine
	}
	if len(f.Keys) > 0 {
		height += textLine
	}
	if height > 0 {
		height += headGap
	}
	return height
}

func (f *Figure) size() (w, h vg.Length, err error) {
	if len(f.Plots) == 0 {
		return 0, 0, errors.New("report: a figure needs at least one plot")
	}
	width, height := f.Width, f.Height
	if width == 0 {
		width = 4.5 * vg.Inch
	}
	if height == 0 {
		height = 2.6 * vg.Inch
	}
	rows, columns := f.grid()
	return width*vg.Length(columns) + 2*margin, height*vg.Length(rows) + 2*margin + f.headHeight(), nil
}

// draw draws the figure. gonum panics on some data that it cannot draw, and runs for ever on an axis from NaN.
func (f *Figure) draw(c draw.Canvas) (err error) {
	for _, p := range f.Plots {
		for _, bound := range []float64{p.X.Min, p.X.Max, p.Y.Min, p.Y.Max} {
			if math.IsNaN(bound) {
				return fmt.Errorf("report: plot %q has an axis that begins or ends at NaN", p.Title.Text)
			}
		}
	}
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("report: figure %q cannot be drawn: %v", f.Title, fault)
		}
	}()
	c.FillPolygon(color.White, []vg.Point{c.Min, {X: c.Max.X, Y: c.Min.Y}, c.Max, {X: c.Min.X, Y: c.Max.Y}})
	f.drawHead(c)
	rows, columns := f.grid()
	table := make([][]*plot.Plot, rows)
	for row := range table {
		table[row] = make([]*plot.Plot, columns)
		copy(table[row], f.Plots[row*columns:min((row+1)*columns, len(f.Plots))])
	}
	area := draw.Crop(c, margin, -margin, margin, -margin-f.headHeight())
	tiles := draw.Tiles{Rows: rows, Cols: columns, PadX: 14, PadY: 14}
	for row, canvases := range plot.Align(table, tiles, area) {
		for column, canvas := range canvases {
			if p := table[row][column]; p != nil {
				drawPlot(p, canvas)
			}
		}
	}
	return nil
}

// drawPlot draws a plot with its title above the left end of the data. gonum's own place for it depends on the labels
// of the axis, so that titles side by side would not stand level.
func drawPlot(p *plot.Plot, canvas draw.Canvas) {
	untitled := *p
	if p.Title.Text != "" {
		untitled.Title.Text = " " // keeps the room
	}
	untitled.Draw(canvas)
	data := untitled.DataCanvas(canvas)
	style := p.Title.TextStyle
	style.XAlign, style.YAlign = draw.XLeft, draw.YBottom
	canvas.FillText(style, vg.Point{X: data.Min.X, Y: data.Max.Y + p.Title.Padding}, p.Title.Text)
}

func (f *Figure) drawHead(c draw.Canvas) {
	x, y := c.Min.X+margin, c.Max.Y-margin
	if f.Title != "" {
		c.FillText(textStyle(13, black, draw.YTop), vg.Point{X: x, Y: y}, f.Title)
		y -= titleLine
	}
	if f.Subtitle != "" {
		c.FillText(textStyle(9, grey, draw.YTop), vg.Point{X: x, Y: y}, f.Subtitle)
		y -= textLine
	}
	for _, key := range f.Keys {
		style := textStyle(9, black, draw.YTop)
		line := draw.LineStyle{Color: key.Color, Width: lineWidth}
		c.StrokeLine2(line, x, y-5, x+16, y-5)
		c.FillText(style, vg.Point{X: x + 20, Y: y}, key.Name)
		x += 20 + style.Width(key.Name) + 16
	}
}
