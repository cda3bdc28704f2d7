//go:build unix

package notebook

import (
	"encoding/gob"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/janpfeifer/gonb/gonbui/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/report"
)

// inCell tells this test binary to play the program of a cell.
const inCell = "NANOAGENTRL_TEST_CELL"

func TestMain(m *testing.M) {
	if os.Getenv(inCell) != "" {
		cellProgram()
		return
	}
	os.Exit(m.Run())
}

func cellProgram() {
	Show(curve())
	Table([]string{"h"}, []any{"v"})
	l := NewLivePlot()
	l.Update(func() (*report.Figure, error) { return curve(), nil })
	l.Update(func() (*report.Figure, error) { panic("too soon") })
	l.Done(curve())
	p := NewProgress()
	p.Set(1, 2, "half")
	p.Done(2, 2, "all")
	Equal("sum", []float64{1}, []float64{2}, 1e-9)
}

// TestInAKernel stands in for the kernel: it opens the two named pipes of a cell, receives what the program shows and
// acknowledges its Syncs.
func TestInAKernel(t *testing.T) {
	dir := t.TempDir()
	toKernel, toCell := filepath.Join(dir, "to_kernel"), filepath.Join(dir, "to_cell")
	require.NoError(t, syscall.Mkfifo(toKernel, 0o600))
	require.NoError(t, syscall.Mkfifo(toCell, 0o600))
	program, err := os.Executable()
	require.NoError(t, err)
	cell := exec.CommandContext(t.Context(), program)
	cell.Env = append(os.Environ(), inCell+"=1", protocol.GONB_PIPE_ENV+"="+toKernel,
		protocol.GONB_PIPE_BACK_ENV+"="+toCell)
	var stderr strings.Builder
	cell.Stderr = &stderr
	require.NoError(t, cell.Start())
	shown := receive(t, toKernel, toCell)
	assert.ErrorContains(t, cell.Wait(), "exit status 1", "the kernel then writes this line to the cell's stderr")
	assert.Contains(t, stderr.String(), "sum: number 0 is 1, not 2")

	require.Len(t, shown, 6)
	for _, i := range []int{0, 2, 3} {
		image, _ := shown[i].Data[protocol.MIMEImagePNG].([]byte)
		assert.True(t, strings.HasPrefix(string(image), "\x89PNG"))
		assert.Contains(t, shown[i].Data[protocol.MIMEImageSVG], "<svg", "both forms in one output")
		assert.Equal(t, map[string]int{"width": 549}, shown[i].Metadata["image/png"])
	}
	assert.Empty(t, shown[0].DisplayID)
	assert.NotEmpty(t, shown[2].DisplayID)
	assert.Equal(t, shown[2].DisplayID, shown[3].DisplayID, "updated in place")
	assert.Contains(t, shown[1].Data[protocol.MIMETextHTML], "<td")
	assert.Equal(t, shown[4].DisplayID, shown[5].DisplayID)
	assert.Contains(t, shown[5].Data[protocol.MIMETextHTML], "<b>2</b> of 2")
}

// receive returns what the program of a cell shows, until it ends.
func receive(t *testing.T, toKernel, toCell string) (shown []protocol.DisplayData) {
	t.Helper()
	in, err := os.OpenFile(toKernel, os.O_RDONLY, 0)
	require.NoError(t, err)
	defer in.Close()
	back, err := os.OpenFile(toCell, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer back.Close()
	decoder, encoder := gob.NewDecoder(in), gob.NewEncoder(back)
	for {
		var data protocol.DisplayData
		if decoder.Decode(&data) != nil {
			return shown
		}
		if value, ok := data.Data[protocol.MIMECommValue]; ok {
			request, _ := value.(protocol.CommValue)
			require.NoError(t, encoder.Encode(&protocol.CommValue{Address: protocol.GonbuiSyncAckAddress, Value: request.Value}))
			continue
		}
		shown = append(shown, data)
	}
}
