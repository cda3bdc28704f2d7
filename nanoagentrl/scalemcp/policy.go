package scalemcp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/generate"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
)

// Method names a scripted policy.
type Method string

// The policies.
const (
	// SearchR1 searches max(1, depth-1) times and then gives the answer and the plan that it read in what came back.
	SearchR1 Method = "search-r1"
	// NeverSearch guesses at once: one of the domain's answers, and tools at random.
	NeverSearch Method = "never-search"
	// RandomTool searches and answers as SearchR1 does, but draws the tools of its plan at random.
	RandomTool Method = "random-tool"
)

// Methods lists the policies.
var Methods = []Method{SearchR1, NeverSearch, RandomTool}

// Validate returns an error that lists the policies if m is none of them.
func (m Method) Validate() error {
	switch m {
	case SearchR1, NeverSearch, RandomTool:
		return nil
	}
	return fmt.Errorf("scalemcp: unknown method %q; choose %s, %s or %s", m, SearchR1, NeverSearch, RandomTool)
}

var (
	taskPattern  = regexp.MustCompile(`task (\d+) : resolve case (\d+) for (\w+) in (\d+) steps`)
	casePattern  = regexp.MustCompile(`the case (\d+) resolves to (\S+)`)
	stepsPattern = regexp.MustCompile(`workflow (\w+:\w+(?: -> \w+:\w+)*)`)
)

// turn returns what the policy writes next. All it knows of its task is context, the text of its episode so far.
func (m Method) turn(context string, rng *rand.Rand) (string, error) {
	asked := taskPattern.FindStringSubmatch(context)
	if asked == nil {
		return "", fmt.Errorf("scalemcp: there is no task in %q", context)
	}
	task, nonce, domain, depth := number(asked[1]), number(asked[2]), asked[3], number(asked[4])
	needed := Task{Depth: depth}
	if searches := strings.Count(context, "</search>"); m != NeverSearch && searches < needed.Searches() {
		return fmt.Sprintf("<search> %s </search>", query(task, nonce, searches)), nil
	}
	answer, plan := label(domain, rng.IntN(variants)), randomPlan(rng, domain, depth)
	if read := casePattern.FindStringSubmatch(context); read != nil && number(read[1]) == nonce {
		answer = read[2]
	}
	if read := stepsPattern.FindStringSubmatch(context); read != nil && m == SearchR1 {
		plan = read[1]
	}
	return fmt.Sprintf("<think> workflow %s </think> <answer> %s </answer>", plan, answer), nil
}

// number reads digits that a pattern found.
func number(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}

func randomPlan(rng *rand.Rand, domain string, depth int) string {
	steps := make([]string, depth)
	for i := range steps {
		steps[i] = step(tools[rng.IntN(len(tools))], domain)
	}
	return strings.Join(steps, " "+arrow+" ")
}

// sampler plays a method as generate.Sampler. It is certain of each token, so that all log-probabilities are 0.
type sampler struct {
	method Method
	tok    tokenizer.Tokenizer
}

// Generate implements generate.Sampler. A turn of the script always ends with a stop string and is short, so it does
// not look for the stop string and does not cut; the turn loop checks the limits.
func (s *sampler) Generate(ctx context.Context, seqs []*generate.Sequence, _ generate.Options) error {
	for _, seq := range seqs {
		text, err := s.method.turn(s.tok.Decode(seq.IDs), rand.New(rand.NewPCG(seq.Seed, uint64(seq.Drawn))))
		if err != nil {
			return err
		}
		seq.NewIDs = s.tok.Encode(text)
		seq.Append(seq.NewIDs)
		seq.LogProbs = make([]float32, len(seq.NewIDs))
		seq.Drawn += len(seq.NewIDs)
		seq.Text, seq.Reason = s.tok.Decode(seq.NewIDs), generate.ReasonStop
		seq.Stop = text[strings.LastIndex(text, "</"):]
	}
	return ctx.Err()
}

// Release implements generate.Sampler.
func (s *sampler) Release([]*generate.Sequence) {}
