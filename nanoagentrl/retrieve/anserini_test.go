package retrieve

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
)

// The passages and scores are those of Anserini 2.3.0 with k1 0.9 and b 0.4, for questions without ties, as
// scripts/compare_anserini --vectors wrote them; it compares all questions with the real engine.
func TestTopThreeEqualAnserini(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "anserini.json"))
	require.NoError(t, err)
	var vectors []struct {
		Set, Question string
		Hits          []struct {
			ID    string
			Score float64
		}
	}
	require.NoError(t, json.Unmarshal(text, &vectors))
	require.NotEmpty(t, vectors)
	indexes := map[string]*BM25{}
	for _, v := range vectors {
		if indexes[v.Set] == nil {
			passages, err := data.ReadCorpus(testenv.Shared(t, "data", v.Set))
			require.NoError(t, err)
			indexes[v.Set], err = NewBM25(passages, DefaultBM25())
			require.NoError(t, err)
		}
		var want, got []string
		for _, hit := range v.Hits {
			want = append(want, fmt.Sprintf("%s:%.4f", hit.ID, hit.Score))
		}
		for _, p := range search(t, indexes[v.Set], v.Question, len(v.Hits)) {
			got = append(got, fmt.Sprintf("%s:%.4f", p.ID, p.Score))
		}
		assert.Equal(t, want, got, v.Question)
	}
}
