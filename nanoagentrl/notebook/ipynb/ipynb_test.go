package ipynb

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/report"
)

func read(t *testing.T, path string) *Notebook {
	t.Helper()
	n, err := Read(path)
	require.NoError(t, err)
	return n
}

// The file was made by GoNB 0.11.1 through nbconvert, which ended with status 0 up to the last cell.
func TestBadEndsOfRealCellsAreFound(t *testing.T) {
	assert.Equal(t, []string{
		`cell 2: its program ended with "exit status 2"`,
		`cell 3: its program ended with "exit status 3"`,
		`cell 4: its program ended with "signal: killed"`,
		`cell 5: its program ended with "exit status 4"`,
		"cell 7: error: failed to run \"/usr/local/go/bin/go build -o /tmp/gonb/gonb\": exit status 1\n" +
			"  ./main.go:10:5: declared and not used: unused",
	}, read(t, filepath.Join("testdata", "bad_ends.ipynb")).RunFaults(),
		"cell 1 is fine, and cell 6 only mentions an exit status")
}

func cells(cells ...Cell) *Notebook {
	n := &Notebook{Format: 4, Cells: cells}
	n.Metadata.Kernel.Name = "gonb"
	return n
}

func code(source string, outputs ...Output) Cell {
	count := 1
	return Cell{Type: "code", Source: Text(source), Count: &count, Outputs: outputs}
}

func image(t *testing.T) Output {
	t.Helper()
	data, err := report.Single(report.NewPlot("t", "x", "y")).PNG()
	require.NoError(t, err)
	encoded := base64.StdEncoding.EncodeToString(data)
	return Output{Type: "display_data", Data: map[string]Text{"image/png": Text(encoded[:60] + "\n" + encoded[60:]),
		"image/svg+xml": "<svg/>"}}
}

func TestRunFaults(t *testing.T) {
	skipped := code("%%\n1")
	skipped.Count = nil
	empty := code(" ")
	empty.Count = nil
	good := image(t)
	broken := Output{Type: "display_data", Data: map[string]Text{"image/png": good.Data["image/png"][:40]}}
	n := cells(skipped, empty, code("", good), code("", broken), Cell{Type: "markdown"},
		code("", Output{Type: "stream", Name: "stdout", Text: "exit status 2\n"}),
		code("", Output{Type: "stream", Name: "stderr", Text: "^C\nsignal: interrupt\n"}),
		code("", Output{Type: "stream", Name: "stderr", Text: "GoNB Error:\nx"}))
	assert.Equal(t, []string{"cell 1: was not run", "cell 4: an image is no PNG",
		`cell 7: its program ended with "signal: interrupt"`, `cell 8: its program ended with "GoNB Error:"`}, n.RunFaults())
}

func TestPackageLinesAreFound(t *testing.T) {
	for source, found := range map[string]bool{
		"package main\n": true, "%%\n  package x": true, "packages := 1": true, "// package x": false, "x := pkg": false,
	} {
		faults := cells(code(source, image(t))).FormFaults("gonb")
		assert.Equal(t, found, len(faults) == 1, "%q: %v", source, faults)
	}
}

func TestOutputsFromOutsideAreFound(t *testing.T) {
	for page, found := range map[string]bool{
		`<script>x</script>`: true, `<img src="https://x/y.png">`: true, `<img src='//x/y.png'>`: true, `<iframe>`: true,
		`<link rel=stylesheet href=x>`: true, `<img src="data:image/png;base64,xx">`: false, `<td>&lt;script&gt;</td>`: false,
		`<a href="https://example.org">a link is no fetch</a>`: false,
	} {
		n := cells(code("", image(t), Output{Type: "display_data", Data: map[string]Text{"text/html": Text(page)}}))
		assert.Equal(t, found, len(n.FormFaults("gonb")) == 1, page)
	}
}

func TestAnotherKernelAndNoImage(t *testing.T) {
	assert.Equal(t, []string{`its kernel is "gonb", not "python3"`, "no cell shows an image"},
		cells(code("x")).FormFaults("python3"))
}

func TestCompareFindsMissingImagesAndOtherText(t *testing.T) {
	stdout := func(text Text) Output { return Output{Type: "stream", Name: "stdout", Text: text} }
	kept := cells(code("a", image(t), image(t)), code("b", stdout("1\n2\n"), image(t)))
	assert.Empty(t, Compare(kept, kept))
	swapped := cells(kept.Cells[0], code("b", image(t), stdout("1\n"), stdout("2\n")))
	assert.Empty(t, Compare(kept, swapped), "text and images arrive in varying order and pieces")

	assert.Equal(t, []string{"cell 1: images [image/png image/svg+xml] instead of [image/png image/svg+xml image/png " +
		"image/svg+xml]"}, Compare(kept, cells(code("a", image(t)), kept.Cells[1])))
	other := cells(kept.Cells[0], code("b", stdout("1\n3\n"), image(t)))
	assert.Equal(t, []string{"cell 2: its text is not the one that is kept:\n  kept:  2\n  fresh: 3"},
		Compare(kept, other))
	kept.Cells[1].Metadata.Tags = []string{Varies}
	assert.Empty(t, Compare(kept, other))
	assert.Equal(t, []string{"cell 2: other code"}, Compare(kept, cells(kept.Cells[0], code("c"))))
	assert.Equal(t, []string{"1 cells instead of 2"}, Compare(kept, cells(code("a"))))
}

func TestReadRefusesWhatIsNoNotebook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n.ipynb")
	_, err := Read(path)
	assert.ErrorContains(t, err, path)
	for _, text := range []string{"{", `{"nbformat": 3}`, "[]"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		_, err = Read(path)
		assert.ErrorContains(t, err, path, text)
	}
}

func TestTextIsAStringOrLines(t *testing.T) {
	for _, text := range []string{`"a\nb"`, `["a\n", "b"]`} {
		var got Text
		require.NoError(t, got.UnmarshalJSON([]byte(text)))
		assert.Equal(t, Text("a\nb"), got)
	}
}

// Every notebook of the repository is kept with the outputs of a whole run without a fault.
func TestKeptNotebooks(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("..", "..", "..", "notebooks", "*.ipynb"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		n := read(t, path)
		assert.Empty(t, n.RunFaults(), path)
		assert.Empty(t, n.FormFaults("gonb"), path)
	}
}
