package warmstart

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/reward"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/world"
)

// demos plays n demonstrations of a stage and scores them.
func demos(t *testing.T, r *Recipe, s Stage, n int) []Example {
	t.Helper()
	played, err := newDemonstrator(r, vocabulary(t, r.Task)).play(t.Context(), &s, n, 11)
	require.NoError(t, err)
	require.Len(t, played, n)
	scorer, err := reward.NewScorer(reward.DefaultWeights(), false)
	require.NoError(t, err)
	for _, x := range played {
		require.NoError(t, agent.Check(x.Episode))
		scorer.ScoreOne(x.Episode)
	}
	return played
}

// only returns the default recipe in which demonstrations have one habit.
func only(h habit) *Recipe {
	r := Default()
	is := func(other habit) float64 { return map[bool]float64{true: 1}[h == other] }
	r.OneHop = OneHopHabits{is(atOnce), is(poorQuery), is(wrongPassage), is(right)}
	r.TwoHop = TwoHopHabits{is(atOnce), is(poorQuery), is(oneSearch), is(right)}
	r.Sum = SumHabits{is(atOnce), is(slip), is(forget), is(right)}
	return r
}

func TestEachHabitDoesWhatItsNameSays(t *testing.T) {
	for _, c := range []struct {
		habit    habit
		twoHop   float64
		searches int
		em       func(em float64) bool
	}{
		{atOnce, 0, 0, func(em float64) bool { return em < 0.1 }},
		{atOnce, 1, 0, func(em float64) bool { return em < 0.1 }},
		{poorQuery, 0, 1, func(em float64) bool { return em < 0.3 }},
		{poorQuery, 1, 1, func(em float64) bool { return em < 0.3 }},
		{wrongPassage, 0, 1, func(em float64) bool { return em < 0.1 }},
		{oneSearch, 1, 1, func(em float64) bool { return em < 0.1 }},
		{right, 0, 1, func(em float64) bool { return em == 1 }},
		{right, 1, 2, func(em float64) bool { return em == 1 }},
	} {
		em := 0.0
		for _, x := range demos(t, only(c.habit), Stage{TwoHop: c.twoHop, Habits: Mixed}, 60) {
			e := x.Episode
			require.Equal(t, episode.StopAnswer, e.Stop, "%s", c.habit)
			require.Equal(t, c.searches, e.CountActions(episode.ActionSearch), "%s: %s", c.habit, e.Question)
			require.Equal(t, c.habit == right, len(x.Values) > 0, "only right demonstrations tell how well it copies")
			em += reward.Correct(e)
		}
		assert.True(t, c.em(em/60), "%s over %g: EM %g", c.habit, c.twoHop, em)
	}
}

// The loss sees nothing but what the scripted policy wrote.
func TestDemonstrationsTrainOnPolicyTokensOnly(t *testing.T) {
	tok := vocabulary(t, Facts)
	unk, _ := tok.TokenID(tokenizer.WordUnk)
	for _, x := range demos(t, Default(), Stage{TwoHop: 0.5, Habits: Mixed}, 100) {
		e := x.Episode
		require.NotContains(t, e.IDs, unk, tok.Decode(e.IDs))
		said := ""
		for _, turn := range e.Turns {
			said += turn.Text + " "
		}
		require.Equal(t, strings.TrimSpace(said), text(tok, e, episode.Policy))
		require.NotContains(t, text(tok, e, episode.Policy), "<information>")
	}
}

func TestHabitsComeInTheirShares(t *testing.T) {
	searches := map[int]float64{}
	em := 0.0
	for _, x := range demos(t, Default(), Stage{Habits: Mixed}, 1000) {
		searches[x.Episode.CountActions(episode.ActionSearch)] += 0.001
		em += reward.Correct(x.Episode) / 1000
	}
	assert.InDelta(t, 0.5, searches[0], 0.06)
	assert.InDelta(t, 0.5, searches[1], 0.06)
	assert.InDelta(t, 0.29, em, 0.06)
	for _, x := range demos(t, Default(), Stage{Habits: Good, TwoHop: 0.5}, 50) {
		assert.Equal(t, 1.0, reward.Correct(x.Episode))
	}
}

// The policy must not learn that the right passage comes first.
func TestShuffledDemonstrationsShowTheRightPassageAnywhere(t *testing.T) {
	places := func(shuffle float64) (at [3]float64) {
		r := only(right)
		r.World.Shuffle = shuffle
		for _, x := range demos(t, r, Stage{Habits: Mixed}, 150) {
			fact := world.ReadFacts(x.Episode.Turns[1].Text)[0].String()
			for i, p := range x.Episode.Turns[0].Passages {
				if strings.Contains(p.Contents, fact+" .") {
					at[i] += 1.0 / 150
				}
			}
		}
		return at
	}
	ranked, shuffled := places(0), places(1)
	assert.Greater(t, ranked[0], 0.8, "%v", ranked)
	for i := range shuffled {
		assert.InDelta(t, 1.0/3, shuffled[i], 0.12, "%v", shuffled)
	}
}

func TestDemonstrationsComeFromTheTrainingSplit(t *testing.T) {
	allowed := map[string]bool{}
	for _, k := range []world.Kind{world.Person, world.Town} {
		for _, n := range world.Names(k, world.Train) {
			allowed[n] = true
		}
	}
	tok := vocabulary(t, Facts)
	for _, x := range demos(t, Default(), Stage{TwoHop: 0.3, Habits: Mixed}, 100) {
		for _, f := range world.ReadFacts(tok.Decode(x.Episode.IDs)) {
			require.True(t, allowed[f.Subject], f)
		}
	}
}

func TestDemonstrationsDependOnTheSeedAlone(t *testing.T) {
	s := Stage{TwoHop: 0.3, Habits: Mixed}
	assert.Equal(t, demos(t, Default(), s, 40), demos(t, Default(), s, 40))
}

func TestHabitThatFindsNothingIsAnError(t *testing.T) {
	r := only(wrongPassage)
	r.World.TopK = 1
	_, err := newDemonstrator(r, vocabulary(t, Facts)).play(t.Context(), &Stage{Habits: Mixed}, 10, 1)
	assert.ErrorContains(t, err, "demonstrations of wrong_passage over 1 hops never find what they need")
}

func TestSumHabits(t *testing.T) {
	for h, want := range map[habit]func(em float64) bool{
		right:  func(em float64) bool { return em == 1 },
		slip:   func(em float64) bool { return em == 0 },
		forget: func(em float64) bool { return em == 0 },
		atOnce: func(em float64) bool { return em < 0.15 },
	} {
		r := only(h)
		r.Task = Sums
		tok := vocabulary(t, Sums)
		unk, _ := tok.TokenID(tokenizer.WordUnk)
		em := 0.0
		for _, x := range demos(t, r, Stage{Steps: 3, Habits: Mixed}, 100) {
			e := x.Episode
			require.Equal(t, episode.StopEOS, e.Stop)
			require.NotContains(t, e.IDs, unk)
			em += reward.Correct(e)
			said := text(tok, e, episode.Policy)
			require.Equal(t, h == atOnce, strings.HasPrefix(said, "####"), said)
			require.Len(t, x.Values, map[bool]int{true: strings.Count(said, "=")}[h == right])
			for _, at := range x.Values {
				require.Equal(t, "=", tok.Decode(e.IDs[at-1:at]))
			}
		}
		assert.True(t, want(em/100), "%s: EM %g", h, em/100)
	}
}

// A slip at 0 or at the largest number must still be a slip, and in numbers that there are words for.
func TestSlipAlwaysEndsWrongAndWithinTheVocabulary(t *testing.T) {
	tok := vocabulary(t, Sums)
	unk, _ := tok.TokenID(tokenizer.WordUnk)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		s := world.NewSum(rng, world.Train, 1+rng.IntN(3), world.LargestNumber-3)
		said := writeSum(rng, s, slip, 99)
		require.NotContains(t, tok.Encode(said), unk, said)
		require.False(t, reward.NumberEqual(said, strconv.Itoa(s.After(len(s.Steps)))), said)
	}
}
