package weights

import (
	"fmt"
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
)

// TerminalProgress returns a function for HubOptions.Progress that shows one bar for each file on w if that is a
// terminal, and else one line for each file that is complete.
func TerminalProgress(w io.Writer) func(file string, done, total int64) {
	if !isTerminal(w) {
		return func(file string, done, total int64) {
			if done == total {
				fmt.Fprintf(w, "fetched %s (%.1f MB)\n", file, float64(done)/1e6)
			}
		}
	}
	var bar *progressbar.ProgressBar
	var shown string
	return func(file string, done, total int64) {
		if bar == nil || shown != file {
			if total == 0 {
				total = -1 // a spinner
			}
			bar, shown = progressbar.NewOptions64(total, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(file),
				progressbar.OptionShowBytes(true), progressbar.OptionOnCompletion(func() { fmt.Fprintln(w) })), file
		}
		// A bar that cannot be drawn is no reason to stop.
		_ = bar.Set64(done)
		if done == total {
			bar = nil
		}
	}
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	stat, err := file.Stat()
	return err == nil && stat.Mode()&os.ModeCharDevice != 0
}
