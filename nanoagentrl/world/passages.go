package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
)

// passage is a passage before it has its place in the corpus.
type passage struct {
	contents string
	// facts are those that questions are asked about.
	facts []Fact
}

// publish orders the passages of all splits at random, numbers them, and returns where each fact stands.
func (w *Facts) publish(told []passage, seed uint64) (where map[Fact]string) {
	shuffle(source(seed, passageStream, ""), told)
	where = map[Fact]string{}
	for i, p := range told {
		id := strconv.Itoa(i)
		w.Corpus = append(w.Corpus, data.Passage{ID: id, Contents: p.contents})
		for _, f := range p.facts {
			where[f] = id
		}
	}
	return where
}

// tell writes the passages of a split: those that hold the facts, and those that only distract.
func (p *population) tell(opts FactsOptions, split Split) (told []passage) {
	rng, noise := source(opts.Seed, passageStream, split), source(opts.Seed, noiseStream, split)
	for i := range p.entities {
		e := &p.entities[i]
		told = append(told, tellFacts(rng, e.facts, opts.FactsPerPassage)...)
		for _, f := range e.facts {
			for range talk(noise, opts.Noise) {
				told = append(told, passage{contents: tale(f)})
			}
		}
		if noise.Float64() >= opts.Noise || e.kind != Person {
			continue
		}
		if other, ok := p.namesake(e); ok {
			for _, told1 := range tellFacts(noise, p.invent(noise, other), opts.FactsPerPassage) {
				told = append(told, passage{contents: told1.contents})
			}
		}
	}
	return told
}

// talk draws the number of tales about a fact; see FactsOptions.Noise.
func talk(rng *rand.Rand, noise float64) int {
	switch u := rng.Float64(); {
	case u < noise:
		return 3 + rng.IntN(2)
	case u < 2*noise:
		return 1 + rng.IntN(2)
	}
	return 0
}

// tellFacts writes facts of one entity, in random order, into passages of at most size facts.
func tellFacts(rng *rand.Rand, facts []Fact, size int) (told []passage) {
	facts = slices.Clone(facts)
	shuffle(rng, facts)
	for part := range slices.Chunk(facts, size) {
		var sentences []string
		for _, f := range part {
			sentences = append(sentences, f.String())
		}
		told = append(told, passage{Contents(part[0].Subject, sentences...), part})
	}
	return told
}

// tale writes a passage that asks for a fact time and again and knows nothing. It has no value, and the name does not
// stand before the relation as it does where the fact is told.
func tale(f Fact) string {
	phrase := f.Relation.phrase(f.Subject)
	if f.Relation == Born {
		phrase = fmt.Sprintf("where %s was born", f.Subject)
	}
	return Contents("tales of "+f.Subject, fmt.Sprintf("who knows %s ? nobody knows %s", phrase, phrase),
		fmt.Sprintf("nobody at all knows %s", phrase))
}

// namesake takes a person who shares a word of the name with e out of the spare names.
func (p *population) namesake(e *entity) (name, bool) {
	for i, n := range p.spare {
		if n[0] == e.name[0] || n[1] == e.name[1] {
			p.spare = slices.Delete(p.spare, i, i+1)
			return n, true
		}
	}
	return name{}, false
}

// invent draws the facts of a person whom no question is about.
func (p *population) invent(rng *rand.Rand, n name) (facts []Fact) {
	for _, r := range Relations(Person) {
		facts = append(facts, Fact{Person.write(n), r, p.value(rng, Person.write(n), r)})
	}
	return facts
}
