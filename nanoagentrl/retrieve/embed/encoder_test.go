package embed

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/weights"
)

// reference is what testdata/make.py wrote.
type reference struct {
	Passages []struct {
		Set  string `json:"set"`
		Line int    `json:"line"`
		V    vector `json:"v"`
	} `json:"passages"`
	Texts []struct {
		Text string `json:"text"`
		V    vector `json:"v"`
	} `json:"texts"`
}

// vector reads base64 of little-endian float16.
type vector []float32

func (v *vector) UnmarshalText(text []byte) error {
	bytes, err := base64.StdEncoding.DecodeString(string(text))
	for i := 0; i+1 < len(bytes); i += 2 {
		*v = append(*v, float16.Frombits(binary.LittleEndian.Uint16(bytes[i:])).Float32())
	}
	return err
}

func readReference(t *testing.T) (r reference) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "minilm.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &r))
	require.GreaterOrEqual(t, len(r.Passages), 200)
	return r
}

func miniLM(t testing.TB, dev *device.Device, o Options) *Encoder {
	t.Helper()
	e, err := Open(t.Context(), dev, testenv.Model(t, "all-MiniLM-L6-v2"), weights.HubOptions{}, o)
	require.NoError(t, err)
	t.Cleanup(e.Close)
	return e
}

func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab, aa, bb = ab+float64(a[i])*float64(b[i]), aa+float64(a[i])*float64(a[i]), bb+float64(b[i])*float64(b[i])
	}
	return ab / math.Sqrt(aa*bb)
}

// requireAgree compares vectors with those of sentence-transformers.
func requireAgree(t *testing.T, e *Encoder, texts []string, want []vector) {
	t.Helper()
	got, err := e.Passages(t.Context(), texts, nil)
	require.NoError(t, err)
	least := 1.0
	for i := range texts {
		v := got[i*e.Dim() : (i+1)*e.Dim()]
		c := cosine(v, want[i])
		least = min(least, c)
		assert.GreaterOrEqual(t, c, 0.9999, "%.80q", texts[i])
		assert.InDelta(t, 1, math.Sqrt(dot(v, v)), 1e-5, "length")
	}
	t.Logf("%d texts, least cosine %.7f", len(texts), least)
}

func dot(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

func TestMiniLMAgreesWithSentenceTransformersOnOddTexts(t *testing.T) {
	r := readReference(t)
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		e := miniLM(t, dev, Options{})
		var texts []string
		var want []vector
		for _, v := range r.Texts {
			if dev.Kind == device.Go && len(v.Text) > 150 { // a second each
				continue
			}
			texts, want = append(texts, v.Text), append(want, v.V)
		}
		require.GreaterOrEqual(t, len(texts), 20)
		requireAgree(t, e, texts, want)
		if dev.Kind != device.Go {
			requireAgree(t, miniLM(t, dev, Options{DType: dtypes.BFloat16}), texts, want)
		}
	})
}

func TestMiniLMAgreesWithSentenceTransformersOnPassages(t *testing.T) {
	r := readReference(t)
	e := miniLM(t, testdevice.Open(t, device.XLA), Options{})
	corpora := map[string][]data.Passage{}
	var texts []string
	var want []vector
	cut := 0
	for _, p := range r.Passages {
		if corpora[p.Set] == nil {
			passages, err := data.ReadCorpus(testenv.Shared(t, "data", p.Set))
			require.NoError(t, err)
			corpora[p.Set] = passages
		}
		texts, want = append(texts, corpora[p.Set][p.Line-1].Contents), append(want, p.V)
	}
	for _, ids := range e.Tokens(texts) {
		if len(ids) == e.Model().MaxTokens {
			cut++
		}
	}
	require.Greater(t, cut, 5, "some must be longer than the model sees")
	requireAgree(t, e, texts, want)
	requireAgree(t, miniLM(t, testdevice.Open(t, device.XLA), Options{DType: dtypes.BFloat16}), texts, want)
}
