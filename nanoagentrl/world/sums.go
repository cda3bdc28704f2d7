package world

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
)

// SumsSource is the Question.Source of a Sums world; its answers are scored by number, as those of GSM8K are.
const SumsSource = "gsm8k_sums"

// SumsOptions are the settings of a Sums world.
type SumsOptions struct {
	// Seed fixes everything that is drawn.
	Seed uint64
	// Problems is the number of problems of the training split, EvalProblems that of validation and of test each.
	Problems, EvalProblems int
	// Steps is the largest number of additions and subtractions of a problem; each number from 1 is as frequent as
	// the others, as far as there are enough different problems.
	Steps int
	// Largest bounds every number, results on the way included; at most LargestNumber.
	Largest int
}

// The bounds of the numbers in a Sums world.
const (
	// LargestNumber is the largest number that SumsVocabulary has a word for.
	LargestNumber = 99
	// LargestAmount is the largest number that one step adds or takes away.
	LargestAmount = 12
	// SmallestNumber is the smallest that SumsOptions.Largest may be.
	SmallestNumber = 2 * LargestAmount
)

// DefaultSums are the options of problems of up to three steps with numbers up to 40.
func DefaultSums() SumsOptions {
	return SumsOptions{Seed: 1, Problems: 2000, EvalProblems: 300, Steps: 3, Largest: 40}
}

// Validate returns an error that names every impossible setting.
func (o SumsOptions) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("world: "+format, args...)) }
	if o.Problems < 0 || o.EvalProblems < 0 {
		fault("%d and %d problems; want at least 0", o.Problems, o.EvalProblems)
	}
	if o.Steps < 1 || o.Steps > 8 {
		fault("%d steps; want 1 to 8", o.Steps)
	}
	if o.Largest < SmallestNumber || o.Largest > LargestNumber {
		fault("numbers up to %d; the bound must lie between %d and %d", o.Largest, SmallestNumber, LargestNumber)
	}
	return errors.Join(faults...)
}

// Step is one addition or subtraction.
type Step struct {
	// Plus says whether Amount is added; else it is taken away.
	Plus   bool
	Amount int
}

// Sum is the arithmetic of a problem.
type Sum struct {
	Start int
	Steps []Step
}

// After returns the number after the first n steps.
func (s Sum) After(n int) int {
	total := s.Start
	for _, step := range s.Steps[:n] {
		total = step.apply(total)
	}
	return total
}

func (s Step) apply(total int) int {
	if s.Plus {
		return total + s.Amount
	}
	return total - s.Amount
}

// Solution writes the sum out in the answer form of GSM8K: "12 + 7 = 19 . 19 - 5 = 14 . #### 14".
func (s Sum) Solution() string {
	var out strings.Builder
	for i, step := range s.Steps {
		out.WriteString(step.Write(s.After(i), s.After(i+1)) + " . ")
	}
	return out.String() + Result(s.After(len(s.Steps)))
}

// Write writes the step from one number to another, whether or not that is where it leads: "12 + 7 = 19".
func (s Step) Write(from, to int) string {
	sign := "-"
	if s.Plus {
		sign = "+"
	}
	return fmt.Sprintf("%d %s %d = %d", from, sign, s.Amount, to)
}

// Result writes the last line of a solution: "#### 14".
func Result(n int) string { return "#### " + strconv.Itoa(n) }

// split says which split a sum belongs to: a hash of its numbers gives it to training eight times out of ten, to
// validation and test once each. Names, things and wording play no part.
func (s Sum) split() Split {
	h := fnv.New32a()
	fmt.Fprint(h, s)
	switch h.Sum32() % 10 {
	case 8:
		return Val
	case 9:
		return Test
	}
	return Train
}

// NewSum draws a sum of a split with the given number of steps and numbers up to largest.
func NewSum(rng *rand.Rand, split Split, steps, largest int) Sum {
	for {
		s := Sum{Start: 1 + rng.IntN(largest)}
		for total := s.Start; len(s.Steps) < steps; {
			step := Step{rng.IntN(2) == 0, 1 + rng.IntN(LargestAmount)}
			if next := step.apply(total); next >= 0 && next <= largest {
				s.Steps, total = append(s.Steps, step), next
			}
		}
		if s.split() == split {
			return s
		}
	}
}

// Sums is a world of word problems. It is not changed after it was made.
type Sums struct {
	questions map[Split][]data.Question
	sums      map[string]Sum // by the id of the question
}

// NewSums makes a world. The same options give the same world. It is an error if there are not as many different
// problems as asked for.
func NewSums(opts SumsOptions) (*Sums, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	w := &Sums{questions: map[Split][]data.Question{}, sums: map[string]Sum{}}
	for _, split := range Splits {
		want := opts.EvalProblems
		if split == Train {
			want = opts.Problems
		}
		if err := w.fill(opts, split, want); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// patience is the number of draws in a row that may give a sum seen before.
const patience = 1000

// fill draws the problems of a split. No two have the same sum.
func (w *Sums) fill(opts SumsOptions, split Split, want int) error {
	rng := source(opts.Seed, sumStream, split)
	seen := map[string]bool{}
	for repeats := 0; len(seen) < want; {
		s := NewSum(rng, split, 1+rng.IntN(opts.Steps), opts.Largest)
		if key := fmt.Sprint(s); seen[key] {
			if repeats++; repeats > patience {
				return fmt.Errorf("world: there are hardly more than %d different %s problems of %d steps up to %d; "+
					"ask for fewer, or for more steps", len(seen), split, opts.Steps, opts.Largest)
			}
			continue
		} else {
			seen[key] = true
		}
		repeats = 0
		id := fmt.Sprintf("sums_%s_%d", split, len(seen)-1)
		w.sums[id] = s
		w.questions[split] = append(w.questions[split], data.Question{ID: id, Text: Tell(rng, s), Source: SumsSource,
			Answers: []string{strconv.Itoa(s.After(len(s.Steps)))}, Kind: fmt.Sprintf("%d_steps", len(s.Steps))})
	}
	return nil
}

// Questions returns the problems of a split.
func (w *Sums) Questions(split Split) []data.Question { return w.questions[split] }

// Sum returns the arithmetic of a problem, and false for an unknown id.
func (w *Sums) Sum(questionID string) (Sum, bool) {
	s, ok := w.sums[questionID]
	return s, ok
}

// The words of the problems. The first sixteen first names of the facts world own things.
var (
	sumThings = strings.Fields("apples beads books cards coins cups eggs keys nuts pens shells stamps")
	sumGains  = []string{"buys %s more", "finds %s more", "gets %s more"}
	sumLosses = []string{"gives away %s", "loses %s", "sells %s"}
	sumWords  = strings.Fields("#### + - . = ? away buys does finds gets gives has have how loses many more now " +
		"sells")
	numberWords = strings.Fields("zero one two three four five six seven eight nine ten eleven twelve thirteen " +
		"fourteen fifteen sixteen seventeen eighteen nineteen twenty")
	sumNames = firstNames[:16]
)

// Tell makes a word problem of a sum: "Ada has 12 apples . Ada finds seven more . Ada loses 5 . how many apples does
// Ada have now ?" Numbers up to twenty stand in words half of the time.
func Tell(rng *rand.Rand, s Sum) string {
	name, thing := sumNames[rng.IntN(len(sumNames))], sumThings[rng.IntN(len(sumThings))]
	text := fmt.Sprintf("%s has %s %s . ", name, tellNumber(rng, s.Start), thing)
	for _, step := range s.Steps {
		verbs := sumLosses
		if step.Plus {
			verbs = sumGains
		}
		verb := fmt.Sprintf(verbs[rng.IntN(len(verbs))], tellNumber(rng, step.Amount))
		text += fmt.Sprintf("%s %s . ", name, verb)
	}
	return text + fmt.Sprintf("how many %s does %s have now ?", thing, name)
}

func tellNumber(rng *rand.Rand, n int) string {
	if rng.IntN(2) == 0 && n < len(numberWords) {
		return numberWords[n]
	}
	return strconv.Itoa(n)
}

// SumsVocabulary returns every word of every Sums world and of its solutions, each once, in a fixed order: special
// tokens, tags, the others sorted.
func SumsVocabulary() []string {
	words := slices.Concat(sumNames, sumThings, sumWords, numberWords)
	for n := range LargestNumber + 1 {
		words = append(words, strconv.Itoa(n))
	}
	return vocabulary(words)
}
