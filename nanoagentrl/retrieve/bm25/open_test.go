package bm25

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func damagedCorpus(t *testing.T) (dir string, m *Manifest) {
	t.Helper()
	dir = built(t, writeCorpus(t, passagesOf(randomCorpus(rand.New(rand.NewPCG(6, 9)), 900, 40, 80)...)), BuildOptions{})
	m, err := ReadManifest(dir)
	require.NoError(t, err)
	return dir, m
}

// Open or Verify finds a flipped bit wherever it is.
func TestDamageIsFound(t *testing.T) {
	dir, m := damagedCorpus(t)
	for name, p := range m.Parts {
		t.Run(name, func(t *testing.T) {
			for _, at := range []int64{p.Offset, p.Offset + p.Size/2, p.Offset + p.Size - 1} {
				path := filepath.Join(dir, p.File)
				flip(t, path, int(at))
				x, err := Open(dir, Default())
				if err == nil {
					err = x.Verify(t.Context())
					require.NoError(t, x.Close())
				}
				assert.ErrorIs(t, err, ErrDamaged)
				assert.ErrorContains(t, err, path)
				flip(t, path, int(at))
			}
		})
	}
	opened(t, dir)
}

func TestDamagedManifestIsFound(t *testing.T) {
	dir, _ := damagedCorpus(t)
	path := filepath.Join(dir, manifestName)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for name, c := range map[string]struct{ text, want string }{
		"another number": {strings.Replace(string(text), `"passages": 900`, `"passages": 899`, 1), "its checksum differs"},
		"half of it":     {string(text[:len(text)/2]), "the index is damaged"},
		"empty":          {"", "the index is damaged"},
		"another format": {strings.Replace(string(text), `"format": 1`, `"format": 9`, 1), `in format 9; this program reads bm25 in format 1`},
	} {
		t.Run(name, func(t *testing.T) {
			require.NotEqual(t, c.text, string(text))
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o644))
			_, err := Open(dir, Default())
			assert.ErrorContains(t, err, c.want)
			assert.ErrorContains(t, err, "--rebuild")
		})
	}
	require.NoError(t, os.Remove(path))
	_, err = Open(dir, Default())
	assert.ErrorIs(t, err, ErrNoIndex)
	assert.ErrorContains(t, err, "retriever index")
}

func TestShortAndMissingFilesAreFound(t *testing.T) {
	dir, _ := damagedCorpus(t)
	for _, name := range []string{indexName, passagesName} {
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, size := range []int64{int64(len(text)) - 1, 10, 0} {
			require.NoError(t, os.Truncate(path, size))
			_, err := Open(dir, Default())
			assert.ErrorIs(t, err, ErrDamaged, "%s of %d bytes", name, size)
			assert.ErrorContains(t, err, name)
			require.NoError(t, os.WriteFile(path, text, 0o644))
		}
		require.NoError(t, os.Remove(path))
		_, err = Open(dir, Default())
		assert.ErrorIs(t, err, ErrDamaged)
		assert.ErrorContains(t, err, path+": the index is damaged (the file is missing); build it again")
		require.NoError(t, os.WriteFile(path, text, 0o644))
	}
	opened(t, dir)
}

// A search in postings that are not those that were written ends with hits or an error, never with a panic.
func TestSearchInDamagedPostingsDoesNotPanic(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 9))
	x := inMemoryIndex(t, Default(), randomCorpus(random, 3000, 40, 80)...)
	whole := append([]byte{}, x.postings...)
	failed := 0
	for range 300 {
		copy(x.postings, whole)
		for range 50 {
			x.postings[random.IntN(len(whole))] = byte(random.IntN(256))
		}
		for range 5 {
			if _, err := x.Search(t.Context(), randomQuery(random, 80), 3); err != nil {
				assert.ErrorIs(t, err, ErrDamaged)
				failed++
			}
		}
	}
	assert.Positive(t, failed)
	copy(x.postings, whole)
	assert.NotEmpty(t, search(t, x, "w1", 3))
}

func TestClosedIndexFindsNothingAndSaysSo(t *testing.T) {
	x, err := Open(built(t, writeCorpus(t, passagesOf("red fox")), BuildOptions{}), Default())
	require.NoError(t, err)
	require.NoError(t, x.Close())
	require.NoError(t, x.Close(), "twice")
	_, err = x.Search(t.Context(), "red", 1)
	assert.ErrorIs(t, err, ErrClosed)
	_, err = x.Passage(0)
	assert.ErrorIs(t, err, ErrClosed)
	_, err = x.Explain("red", "p0")
	assert.ErrorIs(t, err, ErrClosed)
	assert.ErrorIs(t, x.Verify(t.Context()), ErrClosed)
}

func TestOtherParametersNeedNoOtherIndex(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 9))
	contents := randomCorpus(random, 2000, 40, 80)
	dir := built(t, writeCorpus(t, passagesOf(contents...)), BuildOptions{})
	for _, o := range []Options{{K1: 0.9, B: 0.4}, {K1: 2, B: 0.75}, {K1: 0, B: 1}} {
		disk, err := Open(dir, o)
		require.NoError(t, err)
		want := newRanker(disk, contents)
		for range 20 {
			query := randomQuery(random, 80)
			assert.Equal(t, want.search(t, query, 4), search(t, disk, query, 4))
		}
		require.NoError(t, disk.Close())
	}
	_, err := Open(dir, Options{K1: -1})
	assert.ErrorContains(t, err, "k1 is -1")
}
