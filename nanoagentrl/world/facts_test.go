package world

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
)

func makeFacts(t *testing.T, change func(o *FactsOptions)) *Facts {
	t.Helper()
	opts := DefaultFacts()
	if change != nil {
		change(&opts)
	}
	w, err := NewFacts(opts)
	require.NoError(t, err)
	return w
}

func byID(corpus []data.Passage) map[string]data.Passage {
	passages := map[string]data.Passage{}
	for _, p := range corpus {
		passages[p.ID] = p
	}
	return passages
}

// Every answer stands in the last gold passage, right after name and relation, and every hop in its own.
func TestGoldPassagesHoldTheWholePath(t *testing.T) {
	for _, size := range []int{1, 2, 4, 9} {
		w := makeFacts(t, func(o *FactsOptions) { o.Hops, o.FactsPerPassage = MixedHops, size })
		passages := byID(w.Corpus)
		require.Len(t, passages, len(w.Corpus), "ids are unique")
		for _, split := range Splits {
			require.NotEmpty(t, w.Questions(split))
			for _, q := range w.Questions(split) {
				path := w.Path(q.ID)
				require.Len(t, q.GoldPassages, len(path))
				for i, f := range path {
					require.Contains(t, passages[q.GoldPassages[i]].Text(), f.String()+" .")
					require.LessOrEqual(t, len(ReadFacts(passages[q.GoldPassages[i]].Contents)), size)
					if i > 0 {
						require.Equal(t, path[i-1].Value, f.Subject)
					}
				}
				require.Equal(t, path[len(path)-1].Value, q.Answers[0])
				require.Contains(t, q.Text, path[0].Subject)
				require.NotContains(t, " "+q.Text+" ", " "+q.Answers[0]+" ", "the question holds its answer")
				require.Equal(t, FactsSource, q.Source)
			}
		}
	}
}

// No passage may contradict another: a name and a relation have one value in the whole corpus.
func TestFactsAreToldOnceAndNeverContradicted(t *testing.T) {
	w := makeFacts(t, nil)
	value := map[string]string{}
	told := 0
	for _, p := range w.Corpus {
		title, _, found := strings.Cut(p.Contents, "\n")
		require.True(t, found)
		require.Regexp(t, `^" .* "$`, title)
		for _, f := range ReadFacts(p.Contents) {
			key := f.Subject + " " + string(f.Relation)
			require.NotContains(t, value, key, "told twice")
			value[key] = f.Value
			told++
		}
	}
	require.Greater(t, told, 500*4+250*2-1)
	for _, split := range Splits {
		for _, q := range w.Questions(split) {
			f := w.Path(q.ID)[0]
			require.Equal(t, f.Value, value[f.Subject+" "+string(f.Relation)])
		}
	}
}

func TestSplitsShareWordsButNoPersonAndNoTown(t *testing.T) {
	for _, k := range []Kind{Person, Town} {
		owner := map[string]Split{}
		words := map[string]bool{}
		for _, split := range Splits {
			for _, n := range Names(k, split) {
				require.NotContains(t, owner, n)
				owner[n] = split
				if split == Train {
					for _, word := range strings.Fields(n) {
						words[word] = true
					}
				}
			}
		}
		first, second := k.lists()
		require.Len(t, owner, len(first)*len(second), "each name has a split")
		require.Len(t, words, len(first)+len(second), "training knows every word")
	}
	// What a world says of its splits follows it: whatever the seed, no test entity is met in training.
	met := map[string]bool{}
	for seed := range uint64(5) {
		w := makeFacts(t, func(o *FactsOptions) { o.Seed, o.EvalPeople = seed, 0 })
		for _, p := range w.Corpus {
			for _, f := range ReadFacts(p.Contents) {
				met[f.Subject], met[f.Value] = true, true
			}
		}
	}
	test := makeFacts(t, func(o *FactsOptions) { o.Seed, o.People, o.Hops = 9, 0, MixedHops })
	for _, split := range []Split{Val, Test} {
		for _, q := range test.Questions(split) {
			for _, f := range test.Path(q.ID) {
				require.False(t, met[f.Subject], f.Subject)
				if _, entity := f.Relation.Leads(); entity {
					require.False(t, met[f.Value], f.Value)
				}
			}
		}
	}
}

func TestTrainingSplitHoldsEveryWord(t *testing.T) {
	for _, people := range []int{128, 300} {
		w := makeFacts(t, func(o *FactsOptions) { o.People, o.EvalPeople, o.Noise = people, 0, 0 })
		seen := map[string]bool{}
		for _, p := range w.Corpus {
			for _, word := range strings.Fields(p.Contents) {
				seen[word] = true
			}
		}
		for _, list := range [][]string{firstNames, lastNames, townFirst, townSecond, rivers, trades} {
			for _, word := range list {
				require.True(t, seen[word], "%d people: %s", people, word)
			}
		}
	}
}

func TestFactsDependOnTheSeedAlone(t *testing.T) {
	a, b := makeFacts(t, nil), makeFacts(t, nil)
	require.Equal(t, a, b)
	c := makeFacts(t, func(o *FactsOptions) { o.Seed = 2 })
	require.NotEqual(t, a.Corpus, c.Corpus)
	// The facts of a split do not depend on how large the others are.
	d := makeFacts(t, func(o *FactsOptions) { o.People = 200 })
	for i, q := range a.Questions(Test) {
		require.Equal(t, q.Text, d.Questions(Test)[i].Text)
		require.Equal(t, q.Answers, d.Questions(Test)[i].Answers)
	}
}

func TestHops(t *testing.T) {
	count := func(hops string) map[string]int {
		kinds := map[string]int{}
		ids := map[string]bool{}
		for _, q := range makeFacts(t, func(o *FactsOptions) { o.Hops = hops }).Questions(Train) {
			require.False(t, ids[q.ID], q.ID)
			ids[q.ID] = true
			kinds[q.Kind]++
			kinds[strings.Split(q.Kind, "/")[0]]++
		}
		return kinds
	}
	one, two, mixed := count(OneHop), count(TwoHop), count(MixedHops)
	assert.Equal(t, 300*4+150*2, one["one_hop"])
	assert.Equal(t, 300, one["one_hop/teacher"])
	assert.Equal(t, 150, one["one_hop/river"])
	assert.Zero(t, one["two_hop"])
	assert.Zero(t, two["one_hop"])
	assert.Equal(t, 300, two["two_hop/teacher/born"])
	assert.Equal(t, 300, two["two_hop/home/river"])
	assert.InDelta(t, 150, two["two_hop/ruler/home"], 10, "all rulers but those at home where they rule")
	assert.Equal(t, mixed["one_hop"], mixed["two_hop"])
	assert.Equal(t, one["one_hop"], mixed["one_hop"])
}

func TestAsk(t *testing.T) {
	for want, got := range map[string]string{
		"where was Ada Bell born ?":                              Ask("Ada Bell", Born),
		"where is the home of Ada Bell ?":                        Ask("Ada Bell", Home),
		"what is the trade of the teacher of Ada Bell ?":         Ask("Ada Bell", Teacher, Trade),
		"where was the ruler of Port Alda born ?":                Ask("Port Alda", Ruler, Born),
		"which river is at the home of Ada Bell ?":               Ask("Ada Bell", Home, River),
		"who is the ruler of the town where Ada Bell was born ?": Ask("Ada Bell", Born, Ruler),
		"who is the teacher of the teacher of Ada Bell ?":        Ask("Ada Bell", Teacher, Teacher),
		"\" Ada Bell \"\nAda Bell trade baker . Ada Bell home X .": Contents("Ada Bell", "Ada Bell trade baker",
			"Ada Bell home X"),
	} {
		assert.Equal(t, want, got)
	}
}

func TestReadFacts(t *testing.T) {
	facts := []Fact{{"Ada Bell", Born, "Port Alda"}, {"Ada Bell", Trade, "baker"}, {"Port Alda", River, "Wye"},
		{"Port Alda", Ruler, "Ben Cole"}}
	text := "where was Ada Bell born ? <information>Doc 1(Title: \" Ada Bell \") Ada Bell born Port Alda . Ada Bell " +
		"trade baker .\nDoc 2(Title: \" Port Alda \") Port Alda river Wye . Port Alda ruler Ben Cole .</information> " +
		"nobody knows the home of Ada Bell . Ada Bell home"
	assert.Equal(t, facts, ReadFacts(text))
	assert.Empty(t, ReadFacts("Ada Bell born baker . Ada Bell trade Port Alda . Port Alda trade baker . born"))
}

func TestImpossibleFactsAreNamed(t *testing.T) {
	for want, change := range map[string]func(o *FactsOptions){
		"5000 people in the train split; there are names for 0 to 1920": func(o *FactsOptions) { o.People = 5000 },
		"400 people in the val split; there are names for 0 to 384":     func(o *FactsOptions) { o.EvalPeople = 400 },
		"-1 people in the train split":                                  func(o *FactsOptions) { o.People = -1 },
		"1 person in the train split":                                   func(o *FactsOptions) { o.People = 1 },
		`hops is "three"; choose one, two or mixed`:                     func(o *FactsOptions) { o.Hops = "three" },
		"0 facts in a passage":                                          func(o *FactsOptions) { o.FactsPerPassage = 0 },
		"noise is 1.5":                                                  func(o *FactsOptions) { o.Noise = 1.5 },
	} {
		opts := DefaultFacts()
		change(&opts)
		_, err := NewFacts(opts)
		assert.ErrorContains(t, err, want)
	}
	_, err := ParseSplit("dev")
	assert.ErrorContains(t, err, `no split "dev"; choose train, val or test`)
	for _, split := range Splits {
		parsed, err := ParseSplit(string(split))
		require.NoError(t, err)
		assert.Equal(t, split, parsed)
	}
}

// A world of the smallest and of the largest size is a world.
func TestExtremeSizes(t *testing.T) {
	for _, o := range []FactsOptions{
		{People: 2, Hops: MixedHops, FactsPerPassage: 1, Noise: 1},
		{People: 1920, EvalPeople: 384, Hops: TwoHop, FactsPerPassage: 4, Noise: 0.3},
	} {
		w, err := NewFacts(o)
		require.NoError(t, err)
		require.NotEmpty(t, w.Questions(Train))
	}
	w, err := NewFacts(FactsOptions{Hops: OneHop, FactsPerPassage: 1})
	require.NoError(t, err)
	require.Empty(t, w.Corpus)
}
