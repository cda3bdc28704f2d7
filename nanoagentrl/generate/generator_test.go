package generate

import (
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
)

// tiny returns a random two-layer model over letters and tags; eos are its end tokens.
func tiny(t testing.TB, dev *device.Device, eos ...int) (*nn.Program, *nn.Params, tokenizer.Tokenizer) {
	words := []string{tokenizer.WordUnk, tokenizer.WordPad, tokenizer.WordBOS, tokenizer.WordEOS, "</", "search", ">"}
	for c := 'a'; c <= 'z'; c++ {
		words = append(words, string(c))
	}
	tok, err := tokenizer.NewWords(words)
	require.NoError(t, err)
	cfg := nn.Config{ModelType: "llama", VocabSize: len(words), HiddenSize: 16, IntermediateSize: 24, NumLayers: 2,
		NumHeads: 4, NumKVHeads: 2, HeadDim: 8, MaxPositions: 96, RopeTheta: 10000, NormEps: 1e-6, TieEmbeddings: true,
		BOS: -1, Pad: -1, EOS: eos}
	params, err := nn.RandomParams(dev, cfg, dtypes.Float32, 11, 0.5)
	require.NoError(t, err)
	t.Cleanup(params.Free)
	return nn.NewProgram(dev, cfg), params, tok
}

func sample(t *testing.T, g *Generator, seqs []*Sequence, opts Options) {
	t.Helper()
	require.NoError(t, g.Generate(context.Background(), seqs, opts))
}

func TestSamplesDoNotDependOnTheRestOfTheBatch(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		program, params, tok := tiny(t, dev)
		prompts := [][]int{{7, 8, 9}, {10, 11, 12, 13, 14, 15, 16, 17, 18}, {7, 8, 9}, {20}, {7, 8, 9}}
		opts := Options{MaxNew: 12, Temperature: 1}
		var alone [][]int
		var logp []float32
		for i, p := range prompts {
			s := NewSequence(p, uint64(i))
			sample(t, New(program, params, tok, Limits{}), []*Sequence{s}, opts)
			require.Len(t, s.NewIDs, 12)
			alone, logp = append(alone, s.NewIDs), append(logp, s.LogProbs...)
		}
		for _, limits := range []Limits{{}, {Rows: 2}, {Rows: 4, PrefillTokens: 16}} {
			var seqs []*Sequence
			for i, p := range prompts {
				seqs = append(seqs, NewSequence(p, uint64(i)))
			}
			sample(t, New(program, params, tok, limits), seqs, opts)
			var got []float32
			for i, s := range seqs {
				require.Equal(t, alone[i], s.NewIDs, "%+v sequence %d", limits, i)
				require.Equal(t, append(append([]int{}, prompts[i]...), alone[i]...), s.IDs)
				require.Equal(t, ReasonLength, s.Reason)
				got = append(got, s.LogProbs...)
			}
			require.InDeltaSlice(t, logp, got, 1e-4)
		}
		require.NotEqual(t, alone[0], alone[2], "other seeds draw other samples")
	})
}

func TestLogProbsAreThoseOfTheSamplingDistribution(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		program, params, tok := tiny(t, dev)
		for _, temperature := range []float64{0.7, 1} {
			s := NewSequence([]int{7, 8, 9}, 3)
			sample(t, New(program, params, tok, Limits{}), []*Sequence{s}, Options{MaxNew: 20, Temperature: temperature})
			mask := make([]uint8, len(s.IDs))
			for i := 3; i < len(mask); i++ {
				mask[i] = 1
			}
			batch, err := nn.NewBatch([]nn.Row{{IDs: s.IDs, Mask: mask}}, 0, false)
			require.NoError(t, err)
			want, _, err := program.LogProbs(params, batch, temperature)
			require.NoError(t, err)
			require.InDeltaSlice(t, want, s.LogProbs, 1e-4)
		}
	})
}

// A second turn, after tokens from the environment, is the same whether the first turn's keys and values were kept,
// thrown away, or the whole history is a new sequence.
func TestLaterTurnEqualsFreshSequence(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		program, params, tok := tiny(t, dev)
		opts := Options{MaxNew: 6, Temperature: 1}
		turns := func(g *Generator, release bool) *Sequence {
			s := NewSequence([]int{7, 8, 9}, 5)
			sample(t, g, []*Sequence{s}, opts)
			s.Append([]int{21, 22, 23, 24})
			if release {
				g.Release([]*Sequence{s})
			}
			sample(t, g, []*Sequence{s, NewSequence([]int{9, 9}, 8)}, opts)
			return s
		}
		kept := turns(New(program, params, tok, Limits{}), false)
		thrown := turns(New(program, params, tok, Limits{}), true)
		tight := turns(New(program, params, tok, Limits{KeepBytes: 1}), false)
		require.Equal(t, kept.IDs, thrown.IDs)
		require.Equal(t, kept.IDs, tight.IDs)
		fresh := NewSequence(kept.IDs[:3+6+4], 5)
		fresh.Drawn = 6
		sample(t, New(program, params, tok, Limits{}), []*Sequence{fresh}, opts)
		require.Equal(t, kept.NewIDs, fresh.NewIDs)
	})
}

func TestKeptStatesAreReleased(t *testing.T) {
	program, params, tok := tiny(t, testdevice.Open(t, device.Go))
	g := New(program, params, tok, Limits{})
	seqs := []*Sequence{NewSequence([]int{7, 8}, 1), NewSequence([]int{9}, 2)}
	sample(t, g, seqs, Options{MaxNew: 3, Temperature: 1})
	require.Positive(t, g.keptBytes)
	g.Release(seqs)
	require.Zero(t, g.keptBytes)
	require.Empty(t, g.kept)
}

// lettersTo returns sequences until one samples all the wanted token ids in a row, and that one.
func seedThatWrites(t *testing.T, g *Generator, prompt []int, opts Options, ok func(*Sequence) bool) *Sequence {
	for seed := range uint64(3000) {
		s := NewSequence(prompt, seed)
		sample(t, g, []*Sequence{s}, opts)
		g.Release([]*Sequence{s})
		if ok(s) {
			return s
		}
	}
	t.Fatal("no seed writes what the test needs")
	return nil
}

func TestStopStringMayStraddleTokens(t *testing.T) {
	program, params, tok := tiny(t, testdevice.Open(t, device.Go))
	g := New(program, params, tok, Limits{})
	// Two letters in a row, as the tokenizer writes them: the stop string ends inside the second token's bytes.
	free := NewSequence([]int{7, 8, 9}, 1)
	sample(t, g, []*Sequence{free}, Options{MaxNew: 8, Temperature: 1})
	stop := string(tok.Bytes(free.NewIDs[2])) + string(tok.Bytes(free.NewIDs[3]))
	stop = stop[:len(stop)-1] // without the last token's final byte, which must stay in the ids only
	s := NewSequence([]int{7, 8, 9}, 1)
	sample(t, g, []*Sequence{s}, Options{MaxNew: 8, Temperature: 1, Stops: []string{"never", stop}})
	require.Equal(t, ReasonStop, s.Reason)
	require.Equal(t, stop, s.Stop)
	require.Equal(t, free.NewIDs[:4], s.NewIDs, "ids keep the whole last token")
	require.Len(t, s.LogProbs, len(s.NewIDs))
	require.Equal(t, stop, s.Text[len(s.Text)-len(stop):], "text is cut right after the stop string")
}

func TestAnyEndTokenEndsSampling(t *testing.T) {
	for _, eos := range []int{3, 2} {
		program, params, tok := tiny(t, testdevice.Open(t, device.Go), 3, 2)
		s := seedThatWrites(t, New(program, params, tok, Limits{}), []int{7}, Options{MaxNew: 12, Temperature: 1},
			func(s *Sequence) bool {
				return s.Reason == ReasonEOS && s.NewIDs[len(s.NewIDs)-1] == eos && len(s.NewIDs) > 2
			})
		require.NotContains(t, s.NewIDs[:len(s.NewIDs)-1], 2)
		require.NotContains(t, s.NewIDs[:len(s.NewIDs)-1], 3)
		require.NotContains(t, s.Text, "os>", "an end token is not part of the text")
		require.Len(t, s.LogProbs, len(s.NewIDs), "the end token is a sampled token like any other")
	}
}

func TestContextFullEndsSampling(t *testing.T) {
	program, params, tok := tiny(t, testdevice.Open(t, device.Go))
	g := New(program, params, tok, Limits{})
	s := NewSequence([]int{7, 8, 9}, 1)
	full := NewSequence([]int{7, 8, 9, 10, 11, 12, 13}, 1)
	sample(t, g, []*Sequence{s, full}, Options{MaxNew: 50, Temperature: 1, MaxContext: 7})
	require.Equal(t, ReasonContext, s.Reason)
	require.Len(t, s.IDs, 7)
	require.Equal(t, []int{7, 8, 9}, s.IDs[:3], "the prompt is intact")
	require.Equal(t, ReasonContext, full.Reason)
	require.Empty(t, full.NewIDs)
}

func TestEachSequenceMayHaveItsOwnLimit(t *testing.T) {
	program, params, tok := tiny(t, testdevice.Open(t, device.Go))
	a, b := NewSequence([]int{7}, 1), NewSequence([]int{7}, 2)
	a.MaxNew = 2
	sample(t, New(program, params, tok, Limits{}), []*Sequence{a, b}, Options{MaxNew: 5, Temperature: 1})
	require.Len(t, a.NewIDs, 2)
	require.Len(t, b.NewIDs, 5)
}

func TestBadSamplingOptionsAreErrors(t *testing.T) {
	program, params, tok := tiny(t, testdevice.Open(t, device.Go))
	g := New(program, params, tok, Limits{})
	ctx := context.Background()
	require.ErrorContains(t, g.Generate(ctx, []*Sequence{NewSequence(nil, 1)}, Options{MaxNew: 1}), "no tokens")
	require.ErrorContains(t, g.Generate(ctx, []*Sequence{NewSequence([]int{1}, 1)}, Options{}), "at least one")
	require.ErrorContains(t, g.Generate(ctx, nil, Options{Temperature: -1}), "negative")
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, g.Generate(cancelled, []*Sequence{NewSequence([]int{1}, 1)}, Options{MaxNew: 1}), context.Canceled)
}

// A run compiles one graph for each bucket of shapes, not one for each step.
func TestCompilationsAreBoundedByBuckets(t *testing.T) {
	for _, n := range []int{1, 63, 64, 65, 96, 97, 128, 129, 1000} {
		require.GreaterOrEqual(t, bucketLength(n), n)
		require.Less(t, bucketLength(n), max(65, n*2))
	}
	buckets := map[int]bool{}
	for n := 1; n <= 2048; n++ {
		buckets[bucketLength(n)] = true
	}
	require.LessOrEqual(t, len(buckets), 11)
}

func TestUniformDrawsAreSpreadAndRepeatable(t *testing.T) {
	counts := make([]int, 10)
	for seed := range uint64(100) {
		for n := range 100 {
			u := Uniform(seed, n)
			require.True(t, u >= 0 && u < 1)
			require.Equal(t, u, Uniform(seed, n))
			counts[int(u*10)]++
		}
	}
	for bin, c := range counts {
		require.InDelta(t, 1000, c, 150, fmt.Sprint("bin ", bin))
	}
}
