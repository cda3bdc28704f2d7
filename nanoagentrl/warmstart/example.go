package warmstart

import (
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
)

// Example is an Episode to train on, with the places of the policy's tokens that tell how well the model copies or
// calculates: the values in the thoughts of copy sequences and of right demonstrations, or the results of right sums.
type Example struct {
	Episode *episode.Episode
	Values  []int
}

// reader finds the values in policy tokens.
type reader struct{ open, close, equals int }

func newReader(tok tokenizer.Tokenizer) reader {
	id := func(word string) int {
		if id, ok := tok.TokenID(word); ok {
			return id
		}
		return -1
	}
	return reader{id("<think>"), id("</think>"), id("=")}
}

// factWidth is the number of tokens of a thought before the value: two of the name, one of the relation.
const factWidth = 3

// values returns the places of the values in an episode: what follows name and relation in a thought, and what follows
// an equals sign.
func (r reader) values(e *episode.Episode) (places []int) {
	begin := -1 // of the value in the thought that is open
	for i, id := range e.IDs {
		if e.Sources[i] != episode.Policy {
			continue
		}
		switch {
		case id == r.open:
			begin = i + 1 + factWidth
		case id == r.close:
			begin = -1
		case begin >= 0 && i >= begin, i > 0 && e.IDs[i-1] == r.equals && r.equals >= 0:
			places = append(places, i)
		}
	}
	return places
}
