package ablation

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"strconv"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl"
)

// CSV returns the numbers behind table and figure in tidy form, one value a row: suite, variant, seed, step, metric,
// value. Beside the metrics of training, for all panels that a suite may watch, and of the evaluations, test/em_KEY,
// test/num_searches_KEY and test/invalid_format_rate_KEY are the measures before (step 0) and after, by their keys
// (sampled, greedy, shuffled, blind). A value that could not be measured is empty. Times are left out, so that equal
// runs give equal files.
func CSV(s *Suite, results []*Result) ([]byte, error) {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	_ = w.Write([]string{"suite", "variant", "seed", "step", "metric", "value"}) // The writer keeps its error for Error.
	for _, v := range s.Variants {
		for _, r := range byVariant(results, v.Name) {
			row := func(step int, metric string, value float64) {
				text := ""
				if !math.IsNaN(value) && !math.IsInf(value, 0) {
					text = strconv.FormatFloat(value, 'g', 6, 64)
				}
				_ = w.Write([]string{s.Name, v.Name, strconv.Itoa(r.Seed), strconv.Itoa(step), metric, text})
			}
			writeMeasures(row, 0, r.Before)
			for _, metric := range append([]string{exactMatch.Metric, exactMatch.Dots}, WatchNames()...) {
				for _, line := range r.Metrics {
					if value, ok := line[metric]; ok {
						row(int(line["step"]), metric, value)
					}
				}
			}
			writeMeasures(row, r.Steps, r.After)
		}
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return nil, fmt.Errorf("CSV: %w", err)
	}
	return out.Bytes(), nil
}

func writeMeasures(row func(step int, metric string, value float64), step int, all map[string]nanoagentrl.Measured) {
	for _, key := range measureKeys {
		if m, ok := all[key]; ok {
			row(step, "test/em_"+key, m.EM)
			row(step, "test/num_searches_"+key, m.Searches)
			row(step, "test/invalid_format_rate_"+key, m.Invalid)
		}
	}
}
