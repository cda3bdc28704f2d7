package world

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/reward"
)

func makeSums(t *testing.T, change func(o *SumsOptions)) *Sums {
	t.Helper()
	opts := DefaultSums()
	if change != nil {
		change(&opts)
	}
	w, err := NewSums(opts)
	require.NoError(t, err)
	return w
}

// The answer is worked out again from the words of the problem alone.
func TestSumsAreRight(t *testing.T) {
	value := func(word string) (int, bool) {
		for n, w := range numberWords {
			if w == word {
				return n, true
			}
		}
		n, err := strconv.Atoi(word)
		return n, err == nil
	}
	inWords, inDigits, steps := 0, 0, map[string]int{}
	w := makeSums(t, nil)
	for _, split := range Splits {
		for _, q := range w.Questions(split) {
			total := 0
			for sentence := range strings.SplitSeq(q.Text, " . ") {
				for _, word := range strings.Fields(sentence) {
					n, ok := value(word)
					if !ok {
						continue
					}
					if strings.ContainsAny(word, "0123456789") {
						inDigits++
					} else {
						inWords++
					}
					if strings.Contains(sentence, "loses") || strings.Contains(sentence, "sells") ||
						strings.Contains(sentence, "gives away") {
						n = -n
					}
					total += n
					require.True(t, total >= 0 && total <= 40, q.Text)
				}
			}
			require.Equal(t, []string{strconv.Itoa(total)}, q.Answers, q.Text)
			sum, ok := w.Sum(q.ID)
			require.True(t, ok)
			require.Equal(t, total, sum.After(len(sum.Steps)))
			steps[q.Kind]++
		}
	}
	assert.Greater(t, inWords, inDigits/2)
	assert.Greater(t, inDigits, inWords/2)
	for _, kind := range []string{"1_steps", "2_steps", "3_steps"} {
		assert.Greater(t, steps[kind], 200, kind)
	}
	assert.Len(t, steps, 3)
}

func TestSolutionHasTheAnswerFormOfGSM8K(t *testing.T) {
	s := Sum{12, []Step{{true, 7}, {false, 5}}}
	assert.Equal(t, "12 + 7 = 19 . 19 - 5 = 14 . #### 14", s.Solution())
	assert.True(t, reward.NumberEqual(s.Solution(), "14"))
	assert.True(t, reward.IsMath(SumsSource))
	assert.Equal(t, "19 - 5 = 13", s.Steps[1].Write(19, 13))
}

func TestSplitsShareNoSum(t *testing.T) {
	split := map[string]Split{}
	for seed := range uint64(3) {
		w := makeSums(t, func(o *SumsOptions) { o.Seed = seed })
		for _, s := range Splits {
			want := map[Split]int{Train: 2000, Val: 300, Test: 300}[s]
			require.Len(t, w.Questions(s), want)
			for _, q := range w.Questions(s) {
				sum, _ := w.Sum(q.ID)
				other, seen := split[sum.Solution()]
				require.True(t, !seen || other == s, "%s in %s and %s", sum.Solution(), other, s)
				split[sum.Solution()] = s
			}
		}
	}
	assert.Equal(t, makeSums(t, nil), makeSums(t, nil))
	assert.NotEqual(t, makeSums(t, nil), makeSums(t, func(o *SumsOptions) { o.Seed = 2 }))
}

func TestImpossibleSumsAreNamed(t *testing.T) {
	for want, change := range map[string]func(o *SumsOptions){
		"-1 and 300 problems":                  func(o *SumsOptions) { o.Problems = -1 },
		"0 steps; want 1 to 8":                 func(o *SumsOptions) { o.Steps = 0 },
		"numbers up to 100":                    func(o *SumsOptions) { o.Largest = 100 },
		"hardly more than":                     func(o *SumsOptions) { o.Steps, o.Problems = 1, 5000 },
		"ask for fewer, or for more steps":     func(o *SumsOptions) { o.Steps, o.Problems = 1, 5000 },
		"the bound must lie between 24 and 99": func(o *SumsOptions) { o.Largest = 12 },
	} {
		opts := DefaultSums()
		change(&opts)
		_, err := NewSums(opts)
		assert.ErrorContains(t, err, want)
	}
}

func TestNewSumKeepsToTheBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		s := NewSum(rng, Test, 4, 30)
		require.Len(t, s.Steps, 4)
		require.Equal(t, Test, s.split())
		for i := range 5 {
			require.GreaterOrEqual(t, s.After(i), 0)
			require.LessOrEqual(t, s.After(i), 30)
		}
	}
}
