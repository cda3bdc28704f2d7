package bm25

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// randomPostings returns n postings in passages below limit.
func randomPostings(random *rand.Rand, n, limit int) (docs []uint32, freqs []uint16) {
	seen := map[uint32]bool{}
	for len(seen) < n {
		seen[uint32(random.IntN(limit))] = true
	}
	for doc := range seen {
		docs = append(docs, doc)
		freq := 1
		if random.IntN(3) == 0 {
			freq = 1 + int(math.Exp(random.Float64()*11))
		}
		freqs = append(freqs, uint16(min(freq, math.MaxUint16)))
	}
	slices.Sort(docs)
	return docs, freqs
}

func TestBlocksHoldWhatWasPacked(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{1, 2, 63, 127, 128} {
		for _, limit := range []int{128, 129, 1000, 1 << 20, math.MaxUint32} {
			docs, freqs := randomPostings(random, n, limit)
			previous := int64(-1)
			if docs[0] > 5 {
				previous = int64(docs[0]) - 3
			}
			packed := append(appendBlock(nil, docs, freqs, previous), make([]byte, slack)...)
			var b block
			require.NoError(t, b.unpack(packed, n, previous))
			assert.Equal(t, docs, b.docs[:b.n])
			for i, freq := range freqs {
				assert.EqualValues(t, freq, b.freq(i))
			}
			assert.Error(t, b.unpack(packed[:len(packed)-1], n, previous), "the slack is needed")
		}
	}
}

func TestCursorFindsEveryPassage(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	for _, n := range []int{1, 5, 128, 129, 256, 1000, 7000} {
		limit := n + random.IntN(3*n) + 1
		docs, freqs := randomPostings(random, n, limit)
		lengths := make([]uint8, limit)
		data := append(appendList(nil, docs, freqs, lengths), make([]byte, slack)...)
		for range 30 {
			var c cursor
			require.NoError(t, c.open(data, n, limit))
			step := 1 + random.IntN(limit)
			for doc := 0; doc < limit; doc += 1 + random.IntN(step) {
				if random.IntN(3) == 0 {
					c.skip(uint32(doc))
				}
				if !c.ended() {
					at, _ := slices.BinarySearch(docs, uint32(doc))
					if at < len(docs) {
						assert.LessOrEqual(t, c.next(), docs[at])
					}
				}
				more, err := c.advance(uint32(doc))
				require.NoError(t, err)
				at, _ := slices.BinarySearch(docs, uint32(doc))
				require.Equal(t, at < len(docs), more)
				if more {
					require.Equal(t, docs[at], c.doc())
					require.EqualValues(t, freqs[at], c.freq())
				}
			}
		}
	}
}

// A bound below what a posting adds would lose passages; one far above would skip nothing.
func TestImpactsBoundEveryPosting(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		n := 1 + random.IntN(blockSize)
		docs, freqs := randomPostings(random, n, 2*n)
		lengths := make([]uint8, 2*n)
		for i := range lengths {
			lengths[i] = uint8(1 + random.IntN(90))
		}
		x := &Index{options: Options{K1: 3 * random.Float64(), B: random.Float64()}, counts: Counts{Tokens: 60, NonEmpty: 1}}
		x.prepare()
		packed := impactOf(docs, freqs, lengths)
		most := float32(0)
		for i, doc := range docs {
			most = max(most, x.part(1, uint32(freqs[i]), lengths[doc]))
		}
		bound := x.bound(packed[:])
		require.GreaterOrEqual(t, bound, most)
		if packed[2*impactPairs-2] == 0 && packed[0] < topFreq {
			require.Equal(t, most, bound, "few pairs are exact")
		}
		half := n / 2
		joined := impactOf(docs[:half], freqs[:half], lengths).join(impactOf(docs[half:], freqs[half:], lengths))
		require.GreaterOrEqual(t, x.bound(joined[:]), most)
	}
}

func TestDictionaryFindsEveryTermAndNoOther(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	seen := map[string]bool{}
	for len(seen) < 1000 {
		seen[randomWord(random, 1<<30)+string(rune(0x100+random.IntN(3)))] = true
	}
	terms := make([]string, 0, len(seen))
	for term := range seen {
		terms = append(terms, term)
	}
	slices.Sort(terms)
	for _, n := range []int{0, 1, 15, 16, 17, 1000} {
		var w dictionaryWriter
		for i, term := range terms[:n] {
			w.add([]byte(term), i+1, 10*i)
		}
		place := 0
		for i, term := range terms[:n] {
			e, ok, err := w.find(term)
			require.NoError(t, err)
			require.True(t, ok, term)
			assert.Equal(t, entry{df: i + 1, place: uint64(place), size: uint64(10 * i)}, e)
			place += 10 * i
			for _, other := range []string{term + "x", term[:len(term)-2], "", "zzz"} {
				_, ok, err := w.find(other)
				require.NoError(t, err)
				assert.Equal(t, slices.Contains(terms[:n], other), ok)
			}
		}
	}
}

// Whatever the bytes are, reading them gives postings or an error.
func FuzzPostings(f *testing.F) {
	random := rand.New(rand.NewPCG(5, 5))
	for _, n := range []int{1, 128, 300} {
		docs, freqs := randomPostings(random, n, 2*n)
		f.Add(append(appendList(nil, docs, freqs, make([]uint8, 2*n)), make([]byte, slack)...), n, 2*n)
	}
	f.Fuzz(func(t *testing.T, data []byte, df, passages int) {
		var c cursor
		if df < 1 || df > passages || passages > 1<<12 || c.open(data, df, passages) != nil {
			return
		}
		last := int64(-1)
		step := uint32(1 + df%7)
		for doc := uint32(0); ; {
			more, err := c.advance(doc)
			if err != nil || !more {
				return
			}
			found := c.doc()
			require.Greater(t, int64(found), last)
			require.Less(t, int(found), passages)
			require.NotZero(t, c.freq())
			last, doc = int64(found), found+step
		}
	})
}
