package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
)

// CursorState is a place in the endless order of a Cursor. With the seed it is all that a checkpoint has to keep.
type CursorState struct {
	// Epoch counts the finished passes over the questions; Position counts the questions taken in this one.
	Epoch    int `json:"epoch"`
	Position int `json:"position"`
	// Size is the number of questions the state belongs to; 0 means unknown.
	Size int `json:"size,omitempty"`
}

// Cursor deals out questions in shuffled epochs without end. The order of an epoch depends on the seed and the number
// of the epoch alone, so that a CursorState and the seed are all it takes to go on exactly where a run stopped.
type Cursor struct {
	questions []Question
	seed      uint64
	state     CursorState
	order     []int // of epoch state.Epoch
}

// NewCursor returns a cursor at the start of epoch 0. The slice is kept, not copied.
func NewCursor(questions []Question, seed uint64) (*Cursor, error) {
	if len(questions) == 0 {
		return nil, errors.New("data: no questions to go through")
	}
	c := &Cursor{questions: questions, seed: seed, state: CursorState{Size: len(questions)}}
	c.order = shuffled(len(questions), seed, uint64(c.state.Epoch))
	return c, nil
}

// Next returns the next n questions; the last of an epoch are followed by the first of the next. A negative n counts
// as 0.
func (c *Cursor) Next(n int) []Question {
	batch := make([]Question, 0, max(n, 0))
	for len(batch) < n {
		if c.state.Position == len(c.order) {
			c.state.Epoch++
			c.state.Position = 0
			c.order = shuffled(len(c.questions), c.seed, uint64(c.state.Epoch))
		}
		batch = append(batch, c.questions[c.order[c.state.Position]])
		c.state.Position++
	}
	return batch
}

// State returns where the cursor stands.
func (c *Cursor) State() CursorState { return c.state }

// Restore goes to a stored place. It fails if the place does not lie in this cursor's questions.
func (c *Cursor) Restore(state CursorState) error {
	if state.Size != 0 && state.Size != len(c.questions) {
		return fmt.Errorf("data: the stored place belongs to %d questions, but %d are loaded; use the data the run "+
			"was started with", state.Size, len(c.questions))
	}
	if state.Epoch < 0 || state.Position < 0 || state.Position > len(c.questions) {
		return fmt.Errorf("data: no such place among %d questions: epoch %d, position %d",
			len(c.questions), state.Epoch, state.Position)
	}
	state.Size = len(c.questions)
	c.state = state
	c.order = shuffled(len(c.questions), c.seed, uint64(state.Epoch))
	return nil
}

// Holdout cuts n questions off for validation, chosen by the seed; both parts keep the order of the data. Questions of
// the same wording (case and spacing aside) stay together, so that no validation question can be met in training. It
// fails if nothing would be left to train on, or if the wordings do not allow for exactly n.
func Holdout(questions []Question, n int, seed uint64) (train, validation []Question, err error) {
	if n < 0 || n >= len(questions) {
		return nil, nil, fmt.Errorf("data: cannot hold %d of %d questions out", n, len(questions))
	}
	groups := groupByWording(questions)
	held := make([]bool, len(questions))
	left := n
	for _, g := range shuffled(len(groups), seed, holdoutStream) {
		if len(groups[g]) > left {
			continue
		}
		for _, i := range groups[g] {
			held[i] = true
		}
		left -= len(groups[g])
	}
	if left > 0 {
		return nil, nil, fmt.Errorf("data: cannot hold exactly %d of %d questions out: too many share their wording",
			n, len(questions))
	}
	for i, question := range questions {
		if held[i] {
			validation = append(validation, question)
		} else {
			train = append(train, question)
		}
	}
	return train, validation, nil
}

// groupByWording returns the indices of the questions of each wording, in the order of their first question.
func groupByWording(questions []Question) [][]int {
	var groups [][]int
	groupOf := map[string]int{}
	for i, question := range questions {
		wording := strings.ToLower(strings.Join(strings.Fields(question.Text), " "))
		g, seen := groupOf[wording]
		if !seen {
			g = len(groups)
			groupOf[wording] = g
			groups = append(groups, nil)
		}
		groups[g] = append(groups[g], i)
	}
	return groups
}

// holdoutStream keeps the draw of Holdout apart from all epochs of a Cursor with the same seed; worldStream and
// mathStream do the same for the made-up data.
const (
	holdoutStream = 1<<63 + iota
	worldStream
	mathStream
)

// shuffled returns the numbers below n in an order that depends on seed and stream alone.
func shuffled(n int, seed, stream uint64) []int { return randomSource(seed, stream).Perm(n) }

func randomSource(seed, stream uint64) *rand.Rand {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[0:], seed)
	binary.LittleEndian.PutUint64(key[8:], stream)
	return rand.New(rand.NewChaCha8(key))
}
