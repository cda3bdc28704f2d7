package notebook

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Table shows rows under a header. Numbers stand on the right, floats with four significant digits; other values are
// shown as fmt.Sprint has them.
func Table(header []string, rows ...[]any) {
	showHTML(tableHTML(header, rows), tableText(header, rows))
}

func cell(value any) (text string, number bool) {
	switch v := value.(type) {
	case float64:
		return number4(v), true
	case float32:
		return number4(float64(v)), true
	case int, int64, uint64, uint8:
		return fmt.Sprint(v), true
	}
	return fmt.Sprint(value), false
}

func alignment(value any) string {
	if _, number := cell(value); number {
		return "right"
	}
	return "left"
}

func number4(x float64) string {
	switch {
	case math.IsNaN(x):
		return "–"
	case x == math.Trunc(x) && math.Abs(x) < 1e6:
		return strconv.FormatFloat(x+0, 'f', -1, 64) // without the sign of -0
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}

func tableHTML(header []string, rows [][]any) string {
	var b strings.Builder
	b.WriteString(`<table style="font-size:13px"><thead><tr>`)
	for i, name := range header {
		align := "left"
		if len(rows) > 0 && i < len(rows[0]) {
			align = alignment(rows[0][i])
		}
		fmt.Fprintf(&b, `<th style="text-align:%s">%s</th>`, align, html.EscapeString(name))
	}
	b.WriteString("</tr></thead><tbody>")
	for _, row := range rows {
		b.WriteString("<tr>")
		for _, value := range row {
			text, _ := cell(value)
			fmt.Fprintf(&b, `<td style="text-align:%s">%s</td>`, alignment(value), html.EscapeString(text))
		}
		b.WriteString("</tr>")
	}
	b.WriteString("</tbody></table>")
	return b.String()
}

func tableText(header []string, rows [][]any) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(header, "\t"))
	for _, row := range rows {
		texts := make([]string, len(row))
		for i, value := range row {
			texts[i], _ = cell(value)
		}
		fmt.Fprintln(w, strings.Join(texts, "\t"))
	}
	_ = w.Flush() // A strings.Builder takes everything.
	return b.String()
}
