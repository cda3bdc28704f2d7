package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
)

// WriteCSV writes the values behind the panels in tidy form, one value a row, unscaled: series, run, step, metric,
// value. A value that could not be measured is empty.
func WriteCSV(out io.Writer, panels []Panel, series ...Series) error {
	w := csv.NewWriter(out)
	_ = w.Write([]string{"series", "run", "step", "metric", "value"}) // The writer keeps its error for Error.
	for _, s := range series {
		for _, run := range s.Runs {
			for _, panel := range panels {
				for _, metric := range []string{panel.Metric, panel.Dots} {
					points := run.Points(metric)
					for i, step := range points.X {
						value := ""
						if y := points.Y[i]; !math.IsNaN(y) && !math.IsInf(y, 0) {
							value = strconv.FormatFloat(y, 'g', -1, 64)
						}
						_ = w.Write([]string{s.Name, run.Name, strconv.Itoa(int(step)), metric, value})
					}
				}
			}
		}
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return fmt.Errorf("report: CSV: %w", err)
	}
	return nil
}

// SaveLearningCurves writes the figure of LearningCurves and the data behind it to path with the endings .png, .svg and
// .csv, whichever of them path has.
func SaveLearningCurves(path, title string, panels []Panel, series ...Series) error {
	f, err := LearningCurves(title, panels, series...)
	if err != nil {
		return err
	}
	if err := f.Save(path); err != nil {
		return err
	}
	path = withoutEnding(path) + ".csv"
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	defer file.Close()
	if err := WriteCSV(file, panels, series...); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return file.Close()
}
