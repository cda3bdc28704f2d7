package bm25

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/analysis"
)

// writeCorpus writes passages into a file of a fresh folder.
func writeCorpus(t testing.TB, passages []data.Passage) string {
	t.Helper()
	var out bytes.Buffer
	for _, p := range passages {
		line, err := json.Marshal(p)
		require.NoError(t, err)
		out.Write(append(line, '\n'))
	}
	return writeText(t, out.String())
}

func writeText(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "corpus.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// small makes lots of a few lines, so that a small corpus has many.
func small(o BuildOptions) BuildOptions {
	o.lines = 50
	return o
}

func built(t testing.TB, corpus string, o BuildOptions) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "index")
	_, err := Build(context.Background(), corpus, dir, o)
	require.NoError(t, err)
	return dir
}

func opened(t testing.TB, dir string) *Index {
	t.Helper()
	x, err := Open(dir, Default())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	require.NoError(t, x.Verify(context.Background()))
	return x
}

// files returns the contents of all files of a folder, but for the lock.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	texts := map[string]string{}
	for _, e := range entries {
		if e.Name() != ".lock" {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			require.NoError(t, err)
			texts[e.Name()] = string(text)
		}
	}
	return texts
}

func TestIndexInAFolderEqualsTheOneInMemory(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 9))
	passages := passagesOf(randomCorpus(random, 1234, 30, 500)...)
	memory, err := New(passages, Default())
	require.NoError(t, err)
	disk := opened(t, built(t, writeCorpus(t, passages), small(BuildOptions{})))
	assert.Equal(t, memory.Counts(), disk.Counts())
	assert.Equal(t, memory.postings, disk.postings)
	assert.Equal(t, memory.dictionary, disk.dictionary)
	for range 100 {
		query := randomQuery(random, 500)
		assert.Equal(t, search(t, memory, query, 7), search(t, disk, query, 7), query)
	}
	_, size := disk.Bytes()
	assert.Positive(t, size)
}

func TestEachPassageReturnsItsOwnText(t *testing.T) {
	passages := passagesOf(randomCorpus(rand.New(rand.NewPCG(2, 9)), 333, 30, 500)...)
	passages[5].ID, passages[6].Contents = "órgãos \"x\"", ""
	x := opened(t, built(t, writeCorpus(t, passages), small(BuildOptions{})))
	require.Equal(t, len(passages), x.Len())
	for i, want := range passages {
		got, err := x.Passage(i)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestWorkersDoNotChangeTheIndex(t *testing.T) {
	corpus := writeCorpus(t, passagesOf(randomCorpus(rand.New(rand.NewPCG(3, 9)), 700, 30, 500)...))
	want := files(t, built(t, corpus, small(BuildOptions{Workers: 1})))
	assert.Equal(t, want, files(t, built(t, corpus, small(BuildOptions{Workers: 5}))))
	assert.Len(t, want, 3, "only the index is left")
	assert.Equal(t, want[indexName], files(t, built(t, corpus, BuildOptions{}))[indexName], "nor does the size of lots")
}

// interrupted builds until some passages are stored, and returns the folder.
func interrupted(t *testing.T, corpus string, passages int) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "index")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := Build(ctx, corpus, dir, small(BuildOptions{Progress: func(p Progress) {
		if p.Passages >= passages {
			cancel()
		}
	}}))
	require.ErrorIs(t, err, context.Canceled)
	_, err = Open(dir, Default())
	require.ErrorIs(t, err, ErrNoIndex)
	return dir
}

// resumedAfter goes on with a build and returns from which passage.
func resumedAfter(t *testing.T, corpus, dir string) (resumed int) {
	t.Helper()
	_, err := Build(t.Context(), corpus, dir, small(BuildOptions{Progress: func(p Progress) { resumed = p.Resumed }}))
	require.NoError(t, err)
	return resumed
}

func TestBuildGoesOnWhereItWasInterrupted(t *testing.T) {
	corpus := writeCorpus(t, passagesOf(randomCorpus(rand.New(rand.NewPCG(4, 9)), 400, 30, 500)...))
	want := files(t, built(t, corpus, small(BuildOptions{})))
	for name, spoil := range map[string]func(t *testing.T, dir string){
		"as it was": func(*testing.T, string) {},
		"with half a line in the journal": func(t *testing.T, dir string) {
			appendTo(t, filepath.Join(dir, journalName), `{"end": 17`)
		},
		"with more in the files than was noted": func(t *testing.T, dir string) {
			appendTo(t, filepath.Join(dir, passagesName), "half a passage")
			appendTo(t, filepath.Join(dir, segmentsName), "half a segment")
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := interrupted(t, corpus, 200)
			spoil(t, dir)
			assert.GreaterOrEqual(t, resumedAfter(t, corpus, dir), 200)
			assert.Equal(t, want, files(t, dir))
		})
	}
	t.Run("while merging", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "index")
		ctx, cancel := context.WithCancel(t.Context())
		_, err := Build(ctx, corpus, dir, small(BuildOptions{Progress: func(p Progress) {
			if p.Merging {
				cancel()
			}
		}}))
		_ = err // the corpus may be merged before it looks at the context
		cancel()
		resumedAfter(t, corpus, dir)
		assert.Equal(t, want, files(t, dir))
	})
}

func TestBuildStartsAnewWhereItCannotGoOn(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 9))
	passages := passagesOf(randomCorpus(random, 400, 30, 500)...)
	corpus := writeCorpus(t, passages)
	for name, spoil := range map[string]func(t *testing.T, dir string){
		"another corpus": func(t *testing.T, _ string) {
			passages[3].Contents += " changed"
			text, err := os.ReadFile(writeCorpus(t, passages))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(corpus, text, 0o644))
		},
		"a damaged segment": func(t *testing.T, dir string) { flip(t, filepath.Join(dir, segmentsName), 100) },
		"a damaged passage": func(t *testing.T, dir string) { flip(t, filepath.Join(dir, passagesName), 100) },
		"a lost file":       func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, segmentsName))) },
		"no journal":        func(t *testing.T, dir string) { require.NoError(t, os.Truncate(filepath.Join(dir, journalName), 0)) },
		"an old format": func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, journalName), []byte("{\"format\":0,\"analyzer\":{}}\n"), 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := interrupted(t, corpus, 200)
			spoil(t, dir)
			assert.Zero(t, resumedAfter(t, corpus, dir))
			assert.Equal(t, files(t, built(t, corpus, small(BuildOptions{}))), files(t, dir))
		})
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, file.Close())
}

func flip(t *testing.T, path string, at int) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	text[at] ^= 0x10
	require.NoError(t, os.WriteFile(path, text, 0o644))
}

// The fault that bit others: an index of a corpus that has a line more or less than the one that is served.
func TestIndexOfAnotherCorpusIsRefused(t *testing.T) {
	passages := passagesOf("red fox", "red hen", "dog")
	corpus := writeCorpus(t, passages)
	dir := built(t, corpus, BuildOptions{})
	m, err := ReadManifest(dir)
	require.NoError(t, err)
	assert.Equal(t, 3, m.Counts.Passages)
	assert.NoError(t, m.Check(t.Context(), dir, corpus, analysis.Analyzer{}))
	assert.NoError(t, m.Check(t.Context(), dir, filepath.Dir(corpus), analysis.Analyzer{}), "a folder with a corpus.jsonl")

	fewer, same := writeCorpus(t, passages[:2]), writeCorpus(t, passagesOf("red fox", "red pen", "dog"))
	for other, reason := range map[string]string{fewer: "bytes", same: "SHA-256"} {
		var mismatch *MismatchError
		err := m.Check(t.Context(), dir, other, analysis.Analyzer{})
		require.ErrorAs(t, err, &mismatch)
		assert.ErrorContains(t, err, reason)
		assert.ErrorContains(t, err, "--rebuild")
		before := files(t, dir)
		_, err = Build(t.Context(), other, dir, BuildOptions{})
		require.ErrorAs(t, err, &mismatch)
		assert.Equal(t, before, files(t, dir), "it is not touched")
	}
	_, err = Build(t.Context(), corpus, dir, BuildOptions{Analyzer: analysis.Analyzer{NoStemming: true}})
	assert.ErrorContains(t, err, "analysed")

	_, err = Build(t.Context(), fewer, dir, BuildOptions{Rebuild: true})
	require.NoError(t, err)
	assert.Equal(t, 2, opened(t, dir).Len())
}

func TestBuildOfAFinishedIndexDoesNothing(t *testing.T) {
	corpus := writeCorpus(t, passagesOf("red fox"))
	dir := built(t, corpus, BuildOptions{})
	require.NoError(t, os.Remove(filepath.Join(dir, ".lock")))
	_, err := Build(t.Context(), corpus, dir, BuildOptions{Progress: func(Progress) { t.Error("it built again") }})
	require.NoError(t, err)
	require.NoFileExists(t, filepath.Join(dir, ".lock"), "the folder may be read-only")
}

func TestFaultsOfTheCorpusNameFileAndLine(t *testing.T) {
	var lines []string
	for i := range 120 {
		lines = append(lines, fmt.Sprintf(`{"id": "%d", "contents": "x"}`, i))
	}
	text := strings.Join(lines, "\n")
	for name, c := range map[string]struct{ text, want string }{
		"bad line":                 {text + "\n{oops", ":121: not a JSON object"},
		"null contents":            {text + "\n" + `{"id": "b", "contents": null}`, `:121: "contents" is null`},
		"missing id":               {"\n" + `{"contents": "x"}` + "\n" + text, `:2: no "id"`},
		"id again in the same lot": {`{"id": "5", "contents": ""}` + "\n\n" + text, `:8: id "5" again, first in line 1`},
		"id again in another lot":  {text + "\n" + `{"id": 7, "contents": "y"}`, `:121: id "7" again, first in line 8`},
		"nothing":                  {"\n\n", " holds no passages"},
		"nothing but empty ones":   {`{"id": "a", "contents": ""}` + "\n" + `{"id": "b", "contents": "the"}`, ": no passage has a word"},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeText(t, c.text)
			dir := filepath.Join(t.TempDir(), "index")
			_, err := Build(t.Context(), path, dir, small(BuildOptions{}))
			require.ErrorContains(t, err, path+c.want)
			_, err = ReadManifest(dir)
			assert.ErrorIs(t, err, ErrNoIndex)
			if strings.HasPrefix(c.text, text) {
				left, err := os.ReadDir(dir)
				require.NoError(t, err)
				assert.Len(t, left, 4, "the lots before it are kept, to go on from")
			} else {
				assert.NoDirExists(t, dir)
			}
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644), "when it is put right")
			_, err = Build(t.Context(), path, dir, small(BuildOptions{}))
			require.NoError(t, err)
			assert.Equal(t, 120, opened(t, dir).Len())
		})
	}
}

func TestRepeatedIDIsFoundAfterResuming(t *testing.T) {
	var lines []string
	for i := range 200 {
		lines = append(lines, fmt.Sprintf(`{"id": "%d", "contents": "x"}`, i))
	}
	path := writeText(t, strings.Join(append(lines, lines[3]), "\n"))
	dir := interrupted(t, path, 100)
	_, err := Build(t.Context(), path, dir, small(BuildOptions{}))
	assert.ErrorContains(t, err, `:201: id "3" again, first in line 4`)
}

func TestByteOrderMarkCRLFAndNoFinalNewline(t *testing.T) {
	path := writeText(t, "\xef\xbb\xbf{\"id\": \"a\", \"contents\": \"red\"}\r\n\r\n{\"id\": 2, \"contents\": \"fox\"}")
	x := opened(t, built(t, path, BuildOptions{}))
	for i, want := range []data.Passage{{ID: "a", Contents: "red"}, {ID: "2", Contents: "fox"}} {
		got, err := x.Passage(i)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

func TestTwoBuildsInOneFolderExcludeEachOther(t *testing.T) {
	corpus := writeCorpus(t, passagesOf("red fox"))
	dir := filepath.Join(t.TempDir(), "index")
	var second error
	_, err := Build(t.Context(), corpus, dir, BuildOptions{Progress: func(Progress) {
		_, second = Build(t.Context(), corpus, dir, BuildOptions{})
	}})
	require.NoError(t, err)
	assert.ErrorContains(t, second, "another process")
}
