package dense

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/embed"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/embed/embedtest"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/indexfile"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/weights"
)

func tiny(t testing.TB, seed uint64) *embed.Encoder {
	t.Helper()
	return embedtest.Open(t, testdevice.Open(t, device.Go), seed, embed.Options{})
}

// people are passages of the tiny world.
func people(n int) []data.Passage {
	passages, _ := data.TinyWorld(1, n)
	return passages
}

func writeCorpus(t testing.TB, passages []data.Passage) string {
	t.Helper()
	var out bytes.Buffer
	for _, p := range passages {
		require.NoError(t, json.NewEncoder(&out).Encode(p))
	}
	path := filepath.Join(t.TempDir(), "corpus.jsonl")
	require.NoError(t, os.WriteFile(path, out.Bytes(), 0o644))
	return path
}

func built(t testing.TB, corpus string, e *embed.Encoder) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "index")
	_, err := Build(t.Context(), corpus, dir, e, BuildOptions{lot: 16})
	require.NoError(t, err)
	return dir
}

func opened(t testing.TB, dir string) *Index {
	t.Helper()
	x, err := Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	require.NoError(t, x.Verify(t.Context()))
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

// random makes an index of random vectors, some of them twice, without an encoder.
func random(n, dim int, seed uint64) *Index {
	rng := rand.New(rand.NewPCG(seed, 1))
	x := &Index{dim: dim, n: n, passages: func(doc int) (data.Passage, error) { return data.Passage{ID: fmt.Sprint(doc)}, nil }}
	for doc := range n {
		if doc > 10 && doc%7 == 0 {
			x.vectors = append(x.vectors, x.vectors[2*dim*(doc-9):2*dim*(doc-8)]...)
			continue
		}
		x.vectors = appendHalf(x.vectors, unit(rng, dim))
	}
	return x
}

func unit(rng *rand.Rand, dim int) []float32 {
	v, length := make([]float32, dim), 0.0
	for i := range v {
		f := rng.NormFloat64()
		v[i], length = float32(f), length+f*f
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(length))
	}
	return v
}

func TestSearchIsExactAndBreaksTiesByTheOrderOfTheCorpus(t *testing.T) {
	const dim = 48
	x := random(1000, dim, 3)
	rng := rand.New(rand.NewPCG(5, 5))
	var queries []float32
	for range 9 {
		queries = append(queries, unit(rng, dim)...)
	}
	got, err := x.Search(t.Context(), queries, 40)
	require.NoError(t, err)
	ties := 0
	for q := range got {
		all := make([]Hit, x.n)
		row := make([]float32, dim)
		for doc := range all {
			fromHalf(row, x.vectors[2*dim*doc:])
			sum := 0.0
			for i := range row {
				sum += float64(row[i]) * float64(queries[q*dim+i])
			}
			all[doc] = Hit{doc, float32(sum)}
		}
		require.Len(t, got[q], 40)
		slices.SortStableFunc(all, better)
		for rank, h := range got[q] {
			require.InDelta(t, all[rank].Score, h.Score, 1e-6)
			require.InDelta(t, all[rank].Score, scoreOf(all, h.Doc), 1e-6)
			if rank > 0 && got[q][rank-1].Score == h.Score {
				ties++
				require.Less(t, got[q][rank-1].Doc, h.Doc)
			}
		}
		alone, err := x.Search(t.Context(), queries[q*dim:(q+1)*dim], 40)
		require.NoError(t, err)
		require.Equal(t, got[q], alone[0], "other queries change nothing")
	}
	require.Positive(t, ties, "the test needs equal scores")

	got, err = x.Search(t.Context(), queries[:dim], 5000)
	require.NoError(t, err)
	assert.Len(t, got[0], 1000, "no more than there are")
	_, err = x.Search(t.Context(), queries[:dim+1], 5)
	assert.ErrorContains(t, err, "are not vectors of 48")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = x.Search(ctx, queries, 5)
	assert.ErrorIs(t, err, context.Canceled)
}

func scoreOf(all []Hit, doc int) float32 {
	return all[slices.IndexFunc(all, func(h Hit) bool { return h.Doc == doc })].Score
}

func TestIndexInAFolderFindsTheSameAsInMemory(t *testing.T) {
	e := tiny(t, 1)
	passages := people(50)
	passages[7] = data.Passage{ID: "órgãos", Contents: ""}
	memory, err := New(t.Context(), passages, e, nil)
	require.NoError(t, err)
	disk := opened(t, built(t, writeCorpus(t, passages), e))
	require.Equal(t, 50, disk.Len())
	for i, want := range passages {
		got, err := disk.Passage(i)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	a, err := NewSearcher(memory, e)
	require.NoError(t, err)
	b, err := NewSearcher(disk, e)
	require.NoError(t, err)
	queries := []string{"who was born in the old town", passages[3].Contents, "", "!!!", "C++ \"x\" (y)",
		strings.Repeat("long ", 2000), "東京"}
	want, got := a.Search(t.Context(), queries, 4), b.Search(t.Context(), queries, 4)
	for i := range queries {
		require.NoError(t, got[i].Err)
		if i == 2 || i == 3 {
			assert.Empty(t, got[i].Passages, "nothing is asked")
			continue
		}
		require.Len(t, got[i].Passages, 4)
		for rank, p := range got[i].Passages {
			// Lots of another size are padded otherwise, which may change the last bit of a value.
			assert.InDelta(t, want[i].Passages[rank].Score, p.Score, 1e-3)
		}
	}
	assert.InDelta(t, 1, got[1].Passages[0].Score, 1e-3, "a passage finds itself, or one that is as near")
	assert.ErrorContains(t, b.Search(t.Context(), queries, 0)[6].Err, "bad_request: topk is 0")
	assert.Len(t, b.Search(t.Context(), []string{"a town"}, 999)[0].Passages, 50)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	result := b.Search(ctx, queries, 1)[0]
	require.ErrorIs(t, result.Err, context.Canceled)
	var typed *retrieve.Error
	require.ErrorAs(t, result.Err, &typed)
	assert.Equal(t, retrieve.KindCanceled, typed.Kind)
}

func TestInterruptedBuildGoesOnToTheSameIndex(t *testing.T) {
	e := tiny(t, 1)
	corpus := writeCorpus(t, people(70))
	want := files(t, built(t, corpus, e))
	require.Len(t, want, 4, "only the index is left")
	for _, stop := range []int{1, 17, 40} {
		dir := filepath.Join(t.TempDir(), "index")
		ctx, cancel := context.WithCancel(t.Context())
		_, err := Build(ctx, corpus, dir, e, BuildOptions{lot: 16, Progress: func(p Progress) {
			if p.Encoded >= stop {
				cancel()
			}
		}})
		require.ErrorIs(t, err, context.Canceled)
		_, err = Open(dir)
		require.ErrorIs(t, err, indexfile.ErrNoIndex)
		if stop == 40 { // A crash in mid-write: a vector too much, half a line.
			for name, text := range map[string]string{vectorsName: "half a vector", journalName: `{"passages": 4`} {
				file, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_WRONLY, 0)
				require.NoError(t, err)
				_, err = file.WriteString(text)
				require.NoError(t, err)
				require.NoError(t, file.Close())
			}
		}
		resumed := 0
		_, err = Build(t.Context(), corpus, dir, e, BuildOptions{lot: 16, Progress: func(p Progress) { resumed = p.Resumed }})
		require.NoError(t, err)
		require.Equal(t, want, files(t, dir))
		require.Equal(t, stop/16*16 >= 16, resumed >= 16, "resumed after %d", resumed)
	}
}

func TestBuildGoesOnOnlyWithTheSameCorpusAndModel(t *testing.T) {
	e, other := tiny(t, 1), tiny(t, 2)
	corpus := writeCorpus(t, people(40))
	half := func() (dir string) {
		dir = filepath.Join(t.TempDir(), "index")
		ctx, cancel := context.WithCancel(t.Context())
		_, err := Build(ctx, corpus, dir, e, BuildOptions{lot: 16, Progress: func(p Progress) {
			if p.Encoded > 16 {
				cancel()
			}
		}})
		require.ErrorIs(t, err, context.Canceled)
		return dir
	}
	dir := half()
	_, err := Build(t.Context(), corpus, dir, other, BuildOptions{lot: 16})
	require.NoError(t, err)
	assert.Equal(t, files(t, built(t, corpus, other)), files(t, dir))
	dir, longer := half(), writeCorpus(t, people(41))
	_, err = Build(t.Context(), longer, dir, e, BuildOptions{lot: 16})
	require.NoError(t, err)
	assert.Equal(t, files(t, built(t, longer, e)), files(t, dir))
}

func TestIndexOfAnotherCorpusOrModelIsRefused(t *testing.T) {
	e := tiny(t, 1)
	corpus := writeCorpus(t, people(20))
	dir := built(t, corpus, e)
	var mismatch *indexfile.MismatchError

	before := files(t, dir)
	_, err := Build(t.Context(), corpus, dir, e, BuildOptions{Progress: func(Progress) { t.Error("nothing is to be done") }})
	require.NoError(t, err)
	_, err = Build(t.Context(), writeCorpus(t, people(21)), dir, e, BuildOptions{})
	require.ErrorAs(t, err, &mismatch)
	assert.ErrorContains(t, err, "does not belong to this corpus")
	other := tiny(t, 2)
	_, err = Build(t.Context(), corpus, dir, other, BuildOptions{})
	require.ErrorAs(t, err, &mismatch)
	assert.ErrorContains(t, err, "does not belong to this model: its vectors were made with tiny, SHA-256")
	_, err = NewSearcher(opened(t, dir), other)
	require.ErrorAs(t, err, &mismatch)
	assert.Equal(t, before, files(t, dir))

	shorter := embedtest.Open(t, e.Device(), 1, embed.Options{MaxTokens: 9})
	_, err = NewSearcher(opened(t, dir), shorter)
	assert.ErrorContains(t, err, "its passages were cut off at 40 tokens, not 9")
	prefix := "passage: "
	_, err = NewSearcher(opened(t, dir), embedtest.Open(t, e.Device(), 1, embed.Options{PassagePrefix: &prefix}))
	assert.ErrorContains(t, err, `had the prefix "", not "passage: "`)
	_, err = NewSearcher(opened(t, dir), embedtest.Open(t, e.Device(), 1, embed.Options{QueryPrefix: &prefix}))
	assert.NoError(t, err, "queries may be asked otherwise")

	_, err = Build(t.Context(), corpus, dir, other, BuildOptions{Rebuild: true, lot: 16})
	require.NoError(t, err)
	assert.Equal(t, files(t, built(t, corpus, other)), files(t, dir))
}

func TestBadCorpusIsAnErrorThatNamesFileAndLine(t *testing.T) {
	e := tiny(t, 1)
	for want, text := range map[string]string{
		"holds no passages":                      "\n \n",
		`corpus.jsonl:3: id "1" again, first in`: "{\"id\": 1, \"contents\": \"a\"}\n\n{\"id\": \"1\", \"contents\": \"b\"}\n",
		"corpus.jsonl:2: ":                       "{\"id\": 1, \"contents\": \"a\"}\n{\"id\": 2}\n",
	} {
		path := filepath.Join(t.TempDir(), "corpus.jsonl")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		dir := filepath.Join(t.TempDir(), "index")
		_, err := Build(t.Context(), path, dir, e, BuildOptions{})
		assert.ErrorContains(t, err, want)
		_, err = Open(dir)
		assert.ErrorIs(t, err, indexfile.ErrNoIndex)
	}
	_, err := New(t.Context(), nil, e, nil)
	assert.ErrorContains(t, err, "at least one passage")
}

func TestDamageIsFound(t *testing.T) {
	dir := built(t, writeCorpus(t, people(20)), tiny(t, 1))
	whole := files(t, dir)
	for name, text := range whole {
		for _, size := range []int{0, len(text) / 2, len(text) - 1} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text[:size]), 0o644))
			_, err := Open(dir)
			if name == indexfile.ManifestName && size == len(text)-1 {
				require.NoError(t, err, "only its last newline is gone")
				continue
			}
			assert.ErrorIs(t, err, indexfile.ErrDamaged, "%s of %d bytes", name, size)
		}
		for _, at := range []int{0, len(text) / 2, len(text) - 2} {
			flipped := []byte(text)
			flipped[at] ^= 1
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), flipped, 0o644))
			x, err := Open(dir)
			if err == nil {
				err = x.Verify(t.Context())
				require.NoError(t, x.Close())
			}
			assert.Error(t, err, "%s at %d", name, at)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	for name, edit := range map[string][2]string{
		"checksum differs":          {`"passages": 20`, `"passages": 19`},
		`of kind "bm25"`:            {`"kind": "dense"`, `"kind": "bm25"`},
		"in format 1 here: name an": {`"format": 1`, `"format": 9`},
	} {
		changed := strings.Replace(whole[indexfile.ManifestName], edit[0], edit[1], 1)
		require.NotEqual(t, whole[indexfile.ManifestName], changed)
		require.NoError(t, os.WriteFile(filepath.Join(dir, indexfile.ManifestName), []byte(changed), 0o644))
		_, err := Open(dir)
		assert.ErrorContains(t, err, name)
	}
}

func TestSearchAfterCloseIsAnError(t *testing.T) {
	e := tiny(t, 1)
	x, err := Open(built(t, writeCorpus(t, people(20)), e))
	require.NoError(t, err)
	s, err := NewSearcher(x, e)
	require.NoError(t, err)
	require.NoError(t, x.Close())
	assert.ErrorIs(t, s.Search(t.Context(), []string{"a town"}, 1)[0].Err, indexfile.ErrClosed)
	_, err = x.Passage(0)
	assert.ErrorIs(t, err, indexfile.ErrClosed)
}

func TestMiniLMFindsThePassageThatAnswers(t *testing.T) {
	model := testenv.Model(t, "all-MiniLM-L6-v2")
	e, err := embed.Open(t.Context(), testdevice.Open(t, device.Go), model, weights.HubOptions{}, embed.Options{})
	require.NoError(t, err)
	t.Cleanup(e.Close)
	x, err := New(t.Context(), []data.Passage{
		{ID: "tea", Contents: "\"Tea\"\nTea is made by pouring boiling water over cured leaves."},
		{ID: "hamlet", Contents: "\"Hamlet\"\nA tragedy by William Shakespeare about the Prince of Denmark."},
		{ID: "alps", Contents: "\"Alps\"\nThe Alps are the highest mountains that lie wholly in Europe."},
	}, e, nil)
	require.NoError(t, err)
	s, err := NewSearcher(x, e)
	require.NoError(t, err)
	// None of the words of the questions stands in the passages.
	for query, want := range map[string]string{"which play features a Danish royal?": "hamlet",
		"how do I brew a hot drink?": "tea", "tall peaks of one continent": "alps"} {
		assert.Equal(t, want, s.Search(t.Context(), []string{query}, 1)[0].Passages[0].ID, query)
	}
}

func BenchmarkSearch(b *testing.B) {
	x := random(100_000, 384, 1)
	query := unit(rand.New(rand.NewPCG(1, 1)), 384)
	for b.Loop() {
		_, err := x.Search(b.Context(), query, 3)
		require.NoError(b, err)
	}
}
