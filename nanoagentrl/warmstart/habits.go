package warmstart

import (
	"math/rand/v2"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/world"
)

// habit is a way to act in a demonstration.
type habit string

// The habits; see OneHopHabits, TwoHopHabits and SumHabits.
const (
	atOnce       habit = "at_once"
	poorQuery    habit = "poor_query"
	wrongPassage habit = "wrong_passage"
	oneSearch    habit = "one_search"
	slip         habit = "slip"
	forget       habit = "forget"
	right        habit = "right"
)

// share is how often a habit comes.
type share struct {
	habit habit
	share float64
}

// pick draws a habit; shares add up to 1.
func pick(rng *rand.Rand, shares ...share) habit {
	u := rng.Float64()
	for _, s := range shares {
		if u -= s.share; u < 0 {
			return s.habit
		}
	}
	return shares[len(shares)-1].habit
}

// factsHabit draws what a demonstration over the given number of hops does.
func (r *Recipe) factsHabit(rng *rand.Rand, mixed bool, hops int) habit {
	one, two := r.OneHop, r.TwoHop
	switch {
	case !mixed:
		return right
	case hops == 1:
		return pick(rng, share{atOnce, one.AtOnce}, share{poorQuery, one.PoorQuery},
			share{wrongPassage, one.WrongPassage}, share{right, one.Right})
	default:
		return pick(rng, share{atOnce, two.AtOnce}, share{poorQuery, two.PoorQuery}, share{oneSearch, two.OneSearch},
			share{right, two.Right})
	}
}

// Writing in tags, each a whole action or thought.
func search(words ...string) string { return "<search> " + strings.Join(words, " ") + " </search>" }
func answer(value string) string    { return "<answer> " + value + " </answer>" }
func think(f world.Fact) string     { return "<think> " + f.String() + " </think>" }

// factsDemo acts out one demonstration in a world of facts.
type factsDemo struct {
	path  []world.Fact
	habit habit
	rng   *rand.Rand
	// failed says that the world did not let the habit have its way, so that the demonstration shows something else.
	failed bool
}

// write implements Script.
func (d *factsDemo) write(turn int, text string) string {
	begin := strings.LastIndex(text, "<information>")
	var shown []world.Fact
	if begin >= 0 {
		shown = world.ReadFacts(text[begin:])
	}
	switch d.habit {
	case atOnce:
		return d.guess()
	case poorQuery:
		return d.askPoorly(turn, shown)
	case wrongPassage:
		return d.misread(turn, shown)
	case oneSearch:
		return d.stopEarly(turn, shown)
	default:
		return d.search(turn, shown)
	}
}

func (d *factsDemo) last() world.Fact { return d.path[len(d.path)-1] }

// guess answers with a random value of the right kind.
func (d *factsDemo) guess() string {
	values := d.last().Relation.Values(world.Train)
	return answer(values[d.rng.IntN(len(values))])
}

// search does it right: in turn n it repeats what search n-1 found and searches on, or answers.
func (d *factsDemo) search(turn int, shown []world.Fact) string {
	text := ""
	if turn > 0 {
		found := d.path[turn-1]
		if !contains(shown, found) {
			d.failed = true
			return d.guess()
		}
		text = think(found) + " "
	}
	if turn == len(d.path) {
		return text + answer(d.last().Value)
	}
	next := d.path[turn]
	return text + search(next.Subject, string(next.Relation))
}

func contains(facts []world.Fact, f world.Fact) bool {
	for _, other := range facts {
		if other == f {
			return true
		}
	}
	return false
}

// reads answers with the first shown fact of a relation that keep accepts; without one the demonstration has failed.
func (d *factsDemo) reads(shown []world.Fact, r world.Relation, keep func(f world.Fact) bool) string {
	for _, f := range shown {
		if f.Relation == r && keep(f) {
			return think(f) + " " + answer(f.Value)
		}
	}
	d.failed = true
	return d.guess()
}

// askPoorly searches for too little or for somebody else and answers what it finds.
func (d *factsDemo) askPoorly(turn int, shown []world.Fact) string {
	r := d.last().Relation
	if turn > 0 {
		return d.reads(shown, r, func(world.Fact) bool { return true })
	}
	switch d.rng.IntN(3) {
	case 0:
		return search(string(r))
	case 1:
		return search(strings.Fields(d.path[0].Subject)[0], string(r))
	default:
		others := world.Names(r.Of(), world.Train)
		return search(others[d.rng.IntN(len(others))], string(r))
	}
}

// misread searches well and answers with the same relation of somebody else.
func (d *factsDemo) misread(turn int, shown []world.Fact) string {
	if turn == 0 {
		return d.search(turn, shown)
	}
	return d.reads(shown, d.last().Relation, func(f world.Fact) bool { return f.Subject != d.path[0].Subject })
}

// stopEarly answers after one search: with the entity's own fact of the kind asked for, or else with where the first
// hop leads.
func (d *factsDemo) stopEarly(turn int, shown []world.Fact) string {
	first, r := d.path[0], d.path[0].Relation
	if own := d.last().Relation; own.Of() == r.Of() {
		r = own
	}
	if turn == 0 {
		return search(first.Subject, string(r))
	}
	return d.reads(shown, r, func(f world.Fact) bool { return f.Subject == first.Subject })
}

// sumHabit draws what a demonstration of a sum does.
func (r *Recipe) sumHabit(rng *rand.Rand, mixed bool) habit {
	if !mixed {
		return right
	}
	h := r.Sum
	return pick(rng, share{atOnce, h.AtOnce}, share{slip, h.Slip}, share{forget, h.Forget}, share{right, h.Right})
}

// writeSum writes a solution of a sum by a habit; largest bounds a random result.
func writeSum(rng *rand.Rand, s world.Sum, h habit, largest int) string {
	steps := len(s.Steps)
	switch {
	case h == right:
		return s.Solution()
	case h == atOnce:
		return world.Result(rng.IntN(largest + 1))
	case h == forget && steps > 1:
		return world.Sum{Start: s.Start, Steps: s.Steps[:steps-1]}.Solution()
	default:
		return writeSlip(rng, s)
	}
}

// writeSlip writes a solution that is off by 1 to 3 from some step on.
func writeSlip(rng *rand.Rand, s world.Sum) string {
	wrong := rng.IntN(len(s.Steps))
	off := 1 + rng.IntN(3)
	low := s.After(wrong + 1)
	for n := wrong + 2; n <= len(s.Steps); n++ {
		low = min(low, s.After(n))
	}
	if low >= off && rng.IntN(2) == 0 {
		off = -off
	}
	var out strings.Builder
	total := s.Start
	for i, step := range s.Steps {
		next := s.After(i + 1)
		if i >= wrong {
			next += off
		}
		out.WriteString(step.Write(total, next) + " . ")
		total = next
	}
	return out.String() + world.Result(total)
}
