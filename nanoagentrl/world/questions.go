package world

import (
	"fmt"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
)

// FactsSource is the Question.Source of a Facts world.
const FactsSource = "facts"

// KindOf names the kind of a question that goes along the given relations, as Question.Kind does: "one_hop/born",
// "two_hop/teacher/born".
func KindOf(path ...Relation) string {
	kind := "one_hop"
	if len(path) == 2 {
		kind = "two_hop"
	}
	for _, r := range path {
		kind += "/" + string(r)
	}
	return kind
}

// ask makes the questions of a split.
func (w *Facts) ask(p *population, split Split, opts FactsOptions, where map[Fact]string) {
	rng := source(opts.Seed, questionStream, split)
	var asked [2][]data.Question
	for hops := range asked {
		for i := range p.entities {
			for _, path := range paths(p.entities[i].kind, hops+1) {
				if q, ok := w.askOne(p, split, &p.entities[i], path, where); ok {
					asked[hops] = append(asked[hops], q)
				}
			}
		}
		shuffle(rng, asked[hops])
	}
	one, two := asked[0], asked[1]
	switch opts.Hops {
	case OneHop:
		two = nil
	case TwoHop:
		one = nil
	default:
		n := min(len(one), len(two))
		one, two = one[:n], two[:n]
	}
	questions := append(one[:len(one):len(one)], two...)
	shuffle(rng, questions)
	w.questions[split] = questions
}

// askOne makes the question that leads from an entity along a path. There is none if the way leads back to where it
// began: the question would hold its answer.
func (w *Facts) askOne(p *population, split Split, e *entity, path []Relation, where map[Fact]string) (
	data.Question, bool) {
	subject, at := e.String(), e
	var facts []Fact
	var gold []string
	for _, r := range path {
		f := at.fact(r)
		facts, gold = append(facts, f), append(gold, where[f])
		at = p.byName[f.Value]
	}
	answer := facts[len(facts)-1].Value
	if answer == subject {
		return data.Question{}, false
	}
	kind := KindOf(path...)
	q := data.Question{
		ID:   strings.NewReplacer(" ", "_", "/", "_").Replace(fmt.Sprintf("facts_%s_%s_%s", split, subject, kind)),
		Text: Ask(subject, path...), Answers: path[len(path)-1].aliases(answer), Source: FactsSource,
		GoldPassages: gold, Kind: kind,
	}
	w.paths[q.ID] = facts
	return q, true
}
