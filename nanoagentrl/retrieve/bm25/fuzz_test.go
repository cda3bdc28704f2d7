package bm25

import (
	"context"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/indexfile"
)

// Whatever an index folder holds, also with checksums that fit, opening and searching it ends with hits or an error.
func FuzzOpen(f *testing.F) {
	corpus, dir := filepath.Join(f.TempDir(), "corpus.jsonl"), f.TempDir()
	require.NoError(f, os.WriteFile(corpus, []byte(`{"id": "a", "contents": "red fox"}`+"\n"+`{"id": "b", "contents": "red"}`), 0o644))
	m, err := Build(context.Background(), corpus, dir, BuildOptions{})
	require.NoError(f, err)
	var files [3][]byte
	for i, name := range []string{manifestName, indexName, passagesName} {
		files[i], err = os.ReadFile(filepath.Join(dir, name))
		require.NoError(f, err)
	}
	f.Add(files[0], files[1], files[2], false)
	f.Add(files[0], files[1], files[2], true)
	f.Add([]byte("{}"), []byte{}, []byte{}, false)
	f.Fuzz(func(t *testing.T, manifest, index, passages []byte, fitting bool) {
		dir := t.TempDir()
		for name, text := range map[string][]byte{manifestName: manifest, indexName: index, passagesName: passages} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
		}
		if fitting { // The manifest of the whole index, with the checksums of these files.
			own := *m
			own.Parts = map[string]indexfile.Part{}
			for name, p := range m.Parts {
				text := index
				if p.File == passagesName {
					text = passages
				}
				if p.Offset+p.Size <= int64(len(text)) {
					p.CRC32C = crc32.Checksum(text[p.Offset:p.Offset+p.Size], crc32.MakeTable(crc32.Castagnoli))
				}
				own.Parts[name] = p
			}
			require.NoError(t, indexfile.WriteManifest(dir, &own))
		}
		x, err := Open(dir, Default())
		if err != nil {
			require.ErrorContains(t, err, dir)
			return
		}
		defer func() { require.NoError(t, x.Close()) }()
		for _, query := range []string{"red", "fox red", "zz", "a"} {
			hits, err := x.Search(t.Context(), query, 3)
			if err != nil {
				require.ErrorIs(t, err, ErrDamaged)
			}
			for _, hit := range hits {
				if _, err := x.Passage(int(hit.Doc)); err != nil {
					require.ErrorIs(t, err, ErrDamaged)
				}
			}
		}
	})
}
