package world

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
)

// The answers to FactsOptions.Hops.
const (
	OneHop = "one"
	TwoHop = "two"
	// MixedHops has as many questions of one hop as of two.
	MixedHops = "mixed"
)

// FactsOptions are the settings of a Facts world.
type FactsOptions struct {
	// Seed fixes everything that is drawn.
	Seed uint64
	// People is the number of people of the training split, EvalPeople that of validation and of test each; 0 leaves
	// a split out. Half as many towns go with them. With at least 128 people the training split holds every word.
	People, EvalPeople int
	// Hops is OneHop, TwoHop or MixedHops.
	Hops string
	// FactsPerPassage cuts the facts of an entity, four of a person and two of a town, into passages.
	FactsPerPassage int
	// Noise is the share of facts, 0 to 1, that three or four passages talk about at length without telling them, so
	// that a query for the fact finds those. As many facts again are talked about in one or two passages, which do not
	// crowd them out, and as large a share of people have a namesake of whom all is told and nothing is asked.
	Noise float64
}

// DefaultFacts are the options of a world in which a good query, name and relation, finds its passage nine times out of
// ten among BM25's first three. With Noise 0 it always does.
func DefaultFacts() FactsOptions {
	return FactsOptions{Seed: 1, People: 300, EvalPeople: 100, Hops: OneHop, FactsPerPassage: 2, Noise: 0.1}
}

// Validate returns an error that names every impossible setting.
func (o FactsOptions) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("world: "+format, args...)) }
	for _, split := range Splits {
		n, most := o.people(split), len(pool(Person, split))
		if n < 0 || n > most {
			fault("%d people in the %s split; there are names for 0 to %d", n, split, most)
		} else if n == 1 {
			fault("1 person in the %s split, who could have no teacher", split)
		}
	}
	if !slices.Contains([]string{OneHop, TwoHop, MixedHops}, o.Hops) {
		fault("hops is %q; choose one, two or mixed", o.Hops)
	}
	if o.FactsPerPassage < 1 {
		fault("%d facts in a passage; want at least 1", o.FactsPerPassage)
	}
	if !(o.Noise >= 0 && o.Noise <= 1) {
		fault("noise is %g; want a share between 0 and 1", o.Noise)
	}
	return errors.Join(faults...)
}

func (o FactsOptions) people(split Split) int {
	if split == Train {
		return o.People
	}
	return o.EvalPeople
}

// Facts is a world of people and towns. It is not changed after it was made.
type Facts struct {
	// Corpus are the passages of all splits together, in random order.
	Corpus    []data.Passage
	questions map[Split][]data.Question
	paths     map[string][]Fact // by the id of the question
}

// NewFacts makes a world. The same options give the same world, and the facts of a split do not depend on the size of
// the others.
func NewFacts(opts FactsOptions) (*Facts, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	w := &Facts{questions: map[Split][]data.Question{}, paths: map[string][]Fact{}}
	var told []passage
	populations := map[Split]*population{}
	for _, split := range Splits {
		if opts.people(split) > 0 {
			populations[split] = populate(opts, split)
			told = append(told, populations[split].tell(opts, split)...)
		}
	}
	where := w.publish(told, opts.Seed)
	for split, p := range populations {
		w.ask(p, split, opts, where)
	}
	return w, nil
}

// Questions returns the questions of a split in random order, so that the first n are a fair sample. Question.Kind says
// how many hops it takes over which relations: "one_hop/born", "two_hop/teacher/born". Question.GoldPassages are all
// passages needed, in the order of the hops.
func (w *Facts) Questions(split Split) []data.Question { return w.questions[split] }

// Path returns the facts that lead to the answer of a question, in the order of the hops; nil for an unknown id.
func (w *Facts) Path(questionID string) []Fact { return w.paths[questionID] }

// population holds the entities of one split and their facts.
type population struct {
	entities []entity
	byName   map[string]*entity
	names    map[Kind][]string
	// spare are names of people that the split does not use.
	spare []name
}

// entity is a person or a town.
type entity struct {
	kind  Kind
	name  name
	facts []Fact // one for each of Relations(kind)
}

func (e *entity) String() string { return e.kind.write(e.name) }

// fact returns the entity's fact of a relation.
func (e *entity) fact(r Relation) Fact { return e.facts[slices.Index(Relations(e.kind), r)] }

// populate draws the people and towns of a split and their facts.
func populate(opts FactsOptions, split Split) *population {
	rng := source(opts.Seed, entityStream, split)
	people := draw(rng, Person, split)
	towns := draw(rng, Town, split)
	n := opts.people(split)
	p := &population{spare: people[n:], byName: map[string]*entity{}, names: map[Kind][]string{}}
	for _, chosen := range people[:n] {
		p.entities = append(p.entities, entity{kind: Person, name: chosen})
	}
	for _, chosen := range towns[:min(len(towns), max(2, n/2))] {
		p.entities = append(p.entities, entity{kind: Town, name: chosen})
	}
	p.connect(source(opts.Seed, factStream, split))
	return p
}

// draw shuffles the names of a kind, those that hold every word first.
func draw(rng *rand.Rand, k Kind, split Split) []name {
	names := slices.Clone(pool(k, split))
	shuffle(rng, names)
	return covering(names)
}

// connect draws the facts. Values that are plain words are dealt out evenly, so that each of them occurs.
func (p *population) connect(rng *rand.Rand) {
	for i := range p.entities {
		e := &p.entities[i]
		p.names[e.kind] = append(p.names[e.kind], e.String())
		p.byName[e.String()] = e
	}
	decks := map[Relation][]string{}
	for i := range p.entities {
		e := &p.entities[i]
		for _, r := range Relations(e.kind) {
			if _, leads := r.Leads(); leads {
				e.facts = append(e.facts, Fact{e.String(), r, p.value(rng, e.String(), r)})
				continue
			}
			if len(decks[r]) == 0 {
				decks[r] = r.Values(Train)
				shuffle(rng, decks[r])
			}
			e.facts = append(e.facts, Fact{e.String(), r, decks[r][0]})
			decks[r] = decks[r][1:]
		}
	}
}

// value draws what a relation of subject leads to; nobody is his own teacher.
func (p *population) value(rng *rand.Rand, subject string, r Relation) string {
	k, leads := r.Leads()
	values := p.names[k]
	if !leads {
		values = r.Values(Train)
	}
	for {
		if value := values[rng.IntN(len(values))]; value != subject {
			return value
		}
	}
}

func shuffle[T any](rng *rand.Rand, list []T) {
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}
