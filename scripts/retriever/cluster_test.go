package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/opensearch/opensearchtest"
)

// From a corpus to a real OpenSearch, and from there to what the search in process finds, also over our server.
func TestIndexSearchAndServeInOpenSearch(t *testing.T) {
	node := opensearchtest.Start(t)
	corpus := writeCorpus(t, 60)
	cluster := []string{"--kind", "opensearch", "--url", node.URL, "--name", "people"}
	index := append([]string{"index", "--corpus", corpus, "--shards", "2"}, cluster...)
	code, stdout, stderr := perform(t.Context(), index...)
	require.Equal(t, 0, code, stderr)
	assert.Contains(t, stdout, "index people: 60 passages")
	assert.Contains(t, stderr, "60 passages, ")
	code, _, stderr = perform(t.Context(), index...)
	require.Equal(t, 0, code, stderr)
	assert.NotContains(t, stderr, "60 passages, ", "a finished index is kept")
	code, _, stderr = perform(t.Context(), append([]string{"index", "--corpus", writeCorpus(t, 59)}, cluster...)...)
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "SHA-256")

	passages, questions := data.TinyWorld(1, 60)
	ours, err := retrieve.NewBM25(passages, retrieve.DefaultBM25())
	require.NoError(t, err)
	var queries []string
	for _, q := range questions {
		queries = append(queries, q.Text)
	}
	search := append([]string{"search", "--topk", "5"}, cluster...)
	code, fromCluster, stderr := perform(t.Context(), append(search, queries[3])...)
	require.Equal(t, 0, code, stderr)
	code, inProcess, _ := perform(t.Context(), "search", "--topk", "5", "--corpus", corpus, queries[3])
	require.Equal(t, 0, code)
	assert.Equal(t, inProcess, fromCluster)
	code, _, stderr = perform(t.Context(), append(search, "--explain", "q")...)
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "--explain goes with --kind bm25")
	code, _, stderr = perform(t.Context(), append(search, "--k1", "1.2", "q")...)
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "it ranks with k1 0.9")

	address, stop := serving(t, append([]string{"--corpus", corpus}, cluster...)...)
	client, err := retrieve.NewClient(address, retrieve.DefaultClient())
	require.NoError(t, err)
	got, want := client.Search(t.Context(), queries, 5), ours.Search(t.Context(), queries, 5)
	for i := range queries {
		require.NoError(t, got[i].Err)
		require.Len(t, got[i].Passages, len(want[i].Passages))
		for rank, p := range got[i].Passages {
			assert.Equal(t, want[i].Passages[rank].ID, p.ID)
			assert.InEpsilon(t, want[i].Passages[rank].Score, p.Score, 1e-6)
		}
	}
	code, log := stop()
	assert.Equal(t, 0, code, log)
	assert.True(t, strings.Contains(log, "kind=opensearch"), log)
}
