package tokenizer

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
)

type vector struct {
	Text      string `json:"s"`
	IDs       []int  `json:"ids"`
	RoundTrip bool   `json:"round_trip"`
}

func readVectors(t testing.TB, name string) []vector {
	t.Helper()
	data, err := os.ReadFile(testenv.Shared(t, "vectors", name))
	require.NoError(t, err)
	var file struct {
		Vectors []vector `json:"vectors"`
	}
	require.NoError(t, json.Unmarshal(data, &file))
	require.NotEmpty(t, file.Vectors)
	return file.Vectors
}

func TestVectorsOfRealModels(t *testing.T) {
	for _, c := range []struct{ model, vectors string }{
		{smolModel, "smollm2_tokenizer.json"},
		{qwenModel, "qwen25_tokenizer.json"},
	} {
		t.Run(c.vectors, func(t *testing.T) {
			vectors := readVectors(t, c.vectors)
			b := ggufTokenizer(t, c.model)
			for _, v := range vectors {
				ids := b.Encode(v.Text)
				assert.Equal(t, v.IDs, ids, "%q", v.Text)
				if v.RoundTrip {
					assert.Equal(t, v.Text, b.Decode(ids))
				}
			}
		})
	}
}
