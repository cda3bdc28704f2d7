package warmstart

import (
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/world"
)

// copier makes copy sequences: a search result, then questions about it, each with the thought that repeats the fact
// and the answer. Names are those of the training split, facts are drawn anew for each sequence.
type copier struct {
	tok    tokenizer.Tokenizer
	reader reader
	names  map[world.Kind][]string
	// sharing holds the names of a kind that have a word.
	sharing map[world.Kind]map[string][]string
}

func newCopier(tok tokenizer.Tokenizer) *copier {
	c := &copier{tok: tok, reader: newReader(tok), names: map[world.Kind][]string{},
		sharing: map[world.Kind]map[string][]string{}}
	for _, k := range []world.Kind{world.Person, world.Town} {
		c.names[k] = world.Names(k, world.Train)
		c.sharing[k] = map[string][]string{}
		for _, name := range c.names[k] {
			for _, word := range strings.Fields(name) {
				c.sharing[k][word] = append(c.sharing[k][word], name)
			}
		}
	}
	return c
}

func one[T any](rng *rand.Rand, list []T) T { return list[rng.IntN(len(list))] }

// scene is a search result that was made up: facts by passage, one entity each.
type scene struct {
	passages [][]world.Fact
	// used are the relations of each entity that are told.
	used map[string]map[world.Relation]bool
}

// towns is the share of passages about towns.
const towns = 0.25

// scene draws passages with the given number of facts each, fewer where an entity has no more. mention is the share of
// hard passages that have another one's entity as a value.
func (c *copier) scene(rng *rand.Rand, s *Stage, mention float64) *scene {
	sc := &scene{used: map[string]map[world.Relation]bool{}}
	for len(sc.passages) < s.Passages {
		kind, subject, value := c.unrelated(rng), "", ""
		if len(sc.passages) > 0 && rng.Float64() < s.Hard {
			kind, subject, value = c.related(rng, one(rng, sc.passages)[0], mention)
		}
		if subject == "" {
			subject = one(rng, c.names[kind])
		}
		if facts := c.tell(rng, sc, kind, subject, value, s.Facts); len(facts) > 0 {
			sc.passages = append(sc.passages, facts)
		}
	}
	rng.Shuffle(len(sc.passages), func(i, j int) { sc.passages[i], sc.passages[j] = sc.passages[j], sc.passages[i] })
	return sc
}

func (c *copier) unrelated(rng *rand.Rand) world.Kind {
	if rng.Float64() < towns {
		return world.Town
	}
	return world.Person
}

// related chooses what a passage that is hard to tell from the one of base is about: an entity that has base's as a
// value, base's entity itself, or a namesake.
func (c *copier) related(rng *rand.Rand, base world.Fact, mention float64) (k world.Kind, subject, value string) {
	kind := base.Relation.Of()
	switch u := rng.Float64(); {
	case u < mention:
		if kind == world.Person && rng.Float64() < towns {
			return world.Town, "", base.Subject
		}
		return world.Person, "", base.Subject
	case u < mention+(1-mention)/2:
		return kind, base.Subject, ""
	default:
		return kind, one(rng, c.sharing[kind][one(rng, strings.Fields(base.Subject))]), ""
	}
}

// tell draws up to n facts of an entity that are not told yet, in random order; one of them has the given value, if
// there is one.
func (c *copier) tell(rng *rand.Rand, sc *scene, kind world.Kind, subject, value string, n int) (facts []world.Fact) {
	relations := world.Relations(kind)
	rng.Shuffle(len(relations), func(i, j int) { relations[i], relations[j] = relations[j], relations[i] })
	if sc.used[subject] == nil {
		sc.used[subject] = map[world.Relation]bool{}
	}
	// The relation that leads to value comes first, so that it is among the n.
	for i, r := range relations {
		if value != "" && c.fits(r, value) {
			relations[0], relations[i] = relations[i], relations[0]
			break
		}
	}
	for _, r := range relations {
		if len(facts) == n || sc.used[subject][r] {
			continue
		}
		sc.used[subject][r] = true
		v := c.value(rng, r, subject)
		if value != "" && value != subject && c.fits(r, value) {
			v, value = value, ""
		}
		facts = append(facts, world.Fact{Subject: subject, Relation: r, Value: v})
	}
	rng.Shuffle(len(facts), func(i, j int) { facts[i], facts[j] = facts[j], facts[i] })
	return facts
}

// fits reports whether a relation may lead to an entity.
func (c *copier) fits(r world.Relation, value string) bool {
	k, leads := r.Leads()
	if !leads {
		return false
	}
	word, _, _ := strings.Cut(value, " ")
	return len(c.sharing[k][word]) > 0
}

func (c *copier) value(rng *rand.Rand, r world.Relation, subject string) string {
	k, leads := r.Leads()
	if !leads {
		return one(rng, r.Values(world.Train))
	}
	for {
		if v := one(rng, c.names[k]); v != subject {
			return v
		}
	}
}

// paths lists the ways of one hop, and of two, through a scene. Ways that lead back to their beginning are left out.
func (sc *scene) paths() (one, two [][]world.Fact) {
	about := map[string][]world.Fact{}
	for _, passage := range sc.passages {
		for _, f := range passage {
			about[f.Subject] = append(about[f.Subject], f)
		}
	}
	for _, passage := range sc.passages {
		for _, f := range passage {
			one = append(one, []world.Fact{f})
			for _, next := range about[f.Value] {
				if next.Value != f.Subject {
					two = append(two, []world.Fact{f, next})
				}
			}
		}
	}
	return one, two
}

// shown is the text of the scene as a search shows it.
func (sc *scene) shown() string {
	var passages []episode.Passage
	for i, facts := range sc.passages {
		var sentences []string
		for _, f := range facts {
			sentences = append(sentences, f.String())
		}
		contents := world.Contents(facts[0].Subject, sentences...)
		passages = append(passages, episode.Passage{ID: strconv.Itoa(i), Contents: contents})
	}
	return agent.Observation(passages)
}

// sequence makes one copy sequence of a stage.
func (c *copier) sequence(rng *rand.Rand, s *Stage) Example {
	mention := 1.0 / 3
	if s.CopyTwoHop > 0 {
		mention = 2.0 / 3 // Only these give two hops.
	}
	sc := c.scene(rng, s, mention)
	ones, twos := sc.paths()
	e := &episode.Episode{DataSource: world.FactsSource, Stop: episode.StopAnswer}
	first := rng.Float64() < s.QuestionFirst
	for i := range s.Questions {
		path := one(rng, ones)
		if len(twos) > 0 && rng.Float64() < s.CopyTwoHop {
			path = one(rng, twos)
		}
		question := world.Ask(path[0].Subject, relations(path)...)
		if i == 0 && !first {
			e.Append(episode.Environment, c.tok.EncodePlain(sc.shown()), nil)
		}
		e.Append(episode.Prompt, c.tok.EncodePlain(question), nil)
		if i == 0 && first {
			e.Question, e.PromptText = question, question
			e.Append(episode.Prompt, c.tok.EncodePlain(search(path[0].Subject, string(path[0].Relation))), nil)
			e.Append(episode.Environment, c.tok.EncodePlain(sc.shown()), nil)
		}
		c.reply(e, path)
	}
	return Example{e, c.reader.values(e)}
}

// reply appends what the policy says to a question: each fact as a thought, with the query for the next between, and
// the answer.
func (c *copier) reply(e *episode.Episode, path []world.Fact) {
	text := think(path[0])
	for _, f := range path[1:] {
		text += " " + search(f.Subject, string(f.Relation)) + " " + think(f)
	}
	value := path[len(path)-1].Value
	text += " " + answer(value)
	ids := c.tok.EncodePlain(text)
	begin := len(e.IDs)
	e.Append(episode.Policy, ids, make([]float32, len(ids)))
	e.Turns = append(e.Turns, episode.Turn{Text: text, Action: episode.ActionAnswer, Content: value, Begin: begin,
		End: len(e.IDs)})
}

func relations(path []world.Fact) (all []world.Relation) {
	for _, f := range path {
		all = append(all, f.Relation)
	}
	return all
}
