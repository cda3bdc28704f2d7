package nanoagentrl

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/embed/embedtest"
)

func TestRunSearchesByMeaningAndByBoth(t *testing.T) {
	model := embedtest.Write(t, 1, nil)
	dir := people(t)
	onDisk := []string{"train_data=people", "corpus=people", "data_dir=" + dir, "eval_data=[]", "eval_every=0", "eval_at_start=false"}
	for kind, about := range map[string]string{"dense": "dense in process with tiny over ",
		"hybrid": "hybrid in process, BM25 and tiny over "} {
		index := filepath.Join(t.TempDir(), "index")
		for _, settings := range [][]string{nil, append(onDisk, "index="+index)} {
			var out bytes.Buffer
			cfg := tiny(t, append(settings, "retriever_kind="+kind, "encoder="+model)...)
			r, err := Open(t.Context(), cfg, Options{Out: &out})
			require.NoError(t, err)
			assert.Contains(t, out.String(), about)
			result := r.Searcher.Search(t.Context(), []string{"where was somebody born?"}, 2)[0]
			require.NoError(t, result.Err)
			assert.Len(t, result.Passages, 2)
			r.Close()
		}
		if kind == "hybrid" {
			assert.FileExists(t, filepath.Join(index, "bm25", "manifest.json"))
			index = filepath.Join(index, "dense")
		}
		assert.FileExists(t, filepath.Join(index, "vectors.f16"))
	}
}

func TestKindOfSearchThatCannotBeIsRefused(t *testing.T) {
	cfg := tiny(t)
	cfg.RetrieverKind = "dense"
	assert.ErrorContains(t, cfg.Validate(), "encoder: is empty; retriever_kind: dense needs a sentence encoder")
	cfg.Encoder, cfg.RetrieverURL = "x", "http://127.0.0.1:1"
	assert.ErrorContains(t, cfg.Validate(), "retriever_kind: is dense, but the server at retriever_url decides")
}
