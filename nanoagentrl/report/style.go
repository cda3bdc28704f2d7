package report

import (
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// palette is that of Okabe and Ito (2008), whose colours can be told apart with every kind of colour blindness; its
// yellow, which is faint on white, is left out.
var palette = []color.RGBA{
	{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}, {86, 180, 233, 255},
	{230, 159, 0, 255}, {0, 0, 0, 255},
}

var (
	black = color.RGBA{34, 34, 34, 255}
	grey  = color.RGBA{90, 90, 90, 255}
	faint = color.RGBA{228, 228, 228, 255}
)

const (
	lineWidth = 1.6 * vg.Length(1) // points
	thinWidth = 0.7 * vg.Length(1)
)

// Color returns the i-th colour of the palette; after the last the first comes again.
func Color(i int) color.RGBA { return palette[i%len(palette)] }

func textStyle(size vg.Length, c color.Color, y text.YAlignment) draw.TextStyle {
	return draw.TextStyle{Color: c, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: size},
		YAlign: y, Handler: plot.DefaultTextHandler}
}

// NewPlot returns an empty plot in the house style: a title, what the axes show with their units, a grid.
func NewPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	restyle(&p.Title.TextStyle, 11, black)
	p.Title.Padding = 7
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		restyle(&axis.Label.TextStyle, 9, grey)
		restyle(&axis.Tick.Label, 8.5, grey)
		axis.LineStyle = draw.LineStyle{Color: grey, Width: 0.5}
		axis.Tick.LineStyle, axis.Tick.Length = axis.LineStyle, 3
		axis.Tick.Marker, axis.Padding = roundTicks{}, 3
	}
	restyle(&p.Legend.TextStyle, 8.5, black)
	p.Legend.Padding, p.Legend.ThumbnailWidth = 2, 16
	grid := plotter.NewGrid()
	grid.Horizontal = draw.LineStyle{Color: faint, Width: 0.6}
	grid.Vertical = grid.Horizontal
	p.Add(grid)
	return p
}

func restyle(s *text.Style, size vg.Length, c color.Color) {
	s.Font, s.Color = font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}, c
}

// roundTicks puts a label at each multiple of 1, 2 or 5 times a power of ten.
type roundTicks struct{}

// Ticks implements plot.Ticker.
func (roundTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	if !(high > low) || math.IsInf(high-low, 0) {
		return nil
	}
	rough := (high - low) / 5
	power := math.Pow(10, math.Floor(math.Log10(rough)))
	gap := 10 * power
	for _, factor := range []float64{1, 2, 5} {
		if factor*power >= rough*0.999 {
			gap = factor * power
			break
		}
	}
	decimals := max(0, -int(math.Floor(math.Log10(gap)+1e-9)))
	for k := math.Ceil(low/gap - 1e-9); k <= high/gap+1e-9; k++ {
		ticks = append(ticks, plot.Tick{Value: k * gap, Label: strconv.FormatFloat(k*gap+0, 'f', decimals, 64)})
	}
	return ticks
}

// Points are places in a plot; X and Y are parallel. A NaN in Y is a gap.
type Points struct{ X, Y []float64 }

// Sample returns n points of a function, evenly spaced from low to high.
func Sample(f func(x float64) float64, low, high float64, n int) Points {
	var p Points
	for i := range n {
		x := low + (high-low)*float64(i)/float64(n-1)
		p.X, p.Y = append(p.X, x), append(p.Y, f(x))
	}
	return p
}

// stretches cuts points at the gaps.
func (p Points) stretches() (all []plotter.XYs) {
	var stretch plotter.XYs
	for i, y := range p.Y {
		if math.IsNaN(y) || math.IsInf(y, 0) {
			if len(stretch) > 0 {
				all, stretch = append(all, stretch), nil
			}
			continue
		}
		stretch = append(stretch, plotter.XY{X: p.X[i], Y: y})
	}
	if len(stretch) > 0 {
		all = append(all, stretch)
	}
	return all
}

// AddLine draws a line in the i-th colour, and names it in the plot's legend unless name is empty. A point between gaps
// becomes a dot.
func AddLine(p *plot.Plot, name string, i int, points Points) {
	named := addLine(p, points, draw.LineStyle{Color: Color(i), Width: lineWidth})
	if name != "" && named != nil {
		p.Legend.Add(name, named)
	}
}

// AddDashed is AddLine with a dashed line.
func AddDashed(p *plot.Plot, name string, i int, points Points) {
	style := draw.LineStyle{Color: Color(i), Width: lineWidth, Dashes: []vg.Length{4, 3}}
	if named := addLine(p, points, style); name != "" && named != nil {
		p.Legend.Add(name, named)
	}
}

func addLine(p *plot.Plot, points Points, style draw.LineStyle) (named plot.Thumbnailer) {
	for _, stretch := range points.stretches() {
		if len(stretch) == 1 {
			addDots(p, stretch, style.Color, style.Width)
			continue
		}
		line := &plotter.Line{XYs: stretch, LineStyle: style}
		p.Add(line)
		named = line
	}
	return named
}

// AddDots draws points in the i-th colour, and names them in the plot's legend unless name is empty.
func AddDots(p *plot.Plot, name string, i int, points Points) {
	for k, stretch := range points.stretches() {
		dots := addDots(p, stretch, Color(i), 2.6)
		if k == 0 && name != "" {
			p.Legend.Add(name, dots)
		}
	}
}

func addDots(p *plot.Plot, places plotter.XYs, c color.Color, radius vg.Length) *plotter.Scatter {
	dots := &plotter.Scatter{XYs: places,
		GlyphStyle: draw.GlyphStyle{Color: c, Radius: radius, Shape: draw.CircleGlyph{}}}
	p.Add(dots)
	return dots
}

// addBand fills the space between two lines with the same X.
func addBand(p *plot.Plot, x, low, high []float64, c color.RGBA) {
	if len(x) < 2 {
		return
	}
	outline := make(plotter.XYs, 0, 2*len(x))
	for i := range x {
		outline = append(outline, plotter.XY{X: x[i], Y: low[i]})
	}
	for i := len(x) - 1; i >= 0; i-- {
		outline = append(outline, plotter.XY{X: x[i], Y: high[i]})
	}
	p.Add(&plotter.Polygon{XYs: []plotter.XYs{outline}, Color: color.NRGBA{c.R, c.G, c.B, 48}})
}
