package warmstart

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

// circuit holds the first weights of heads that look back and of heads that match: the two halves of an induction head
// (Olsson et al. 2022, "In-context Learning and Induction Heads"), which a small transformer finds by itself only after
// millions of tokens.
//
// Heads n = 1, 2, 3 … of the first layer look n tokens back by their biases alone. For a pair of coordinates that
// rotary positions turn by w > minTurn a token, the key's bias is (a, 0) and the query's (a·cos(n·w), -a·sin(n·w)), so
// that a query scores a²·cos((distance-n)·w): highest at distance n. a² = 8·√E makes that 8 for each pair. All of them
// read the same code C [E, D] of the token they find, and write it into a subspace of their own, Ω_n [E, D].
//
// A head of the last layer that matches compares, in slots m = 0, 1 …, the token m before the query with the token m+1
// before the key: its query map is Σ R_m·(C if m = 0, else Ω_m), its key map Σ R_m·Ω_(m+1), with random R_m that keep
// the slots apart. It uses the coordinates that rotary positions turn by less than maxTurn a token. So it looks for what
// followed when the last tokens were seen before, and its value and output maps, Pᵀ·P with a random P [E, D], make that
// token more likely. Which of the tokens count is left to the training.
type circuit struct {
	cfg *nn.Config
	// back and match are the numbers of query heads of the two kinds.
	back, match int
	code        matrix   // C
	slots       []matrix // Ω_1, Ω_2 …
	rng         *rand.Rand
}

const (
	// minTurn is the slowest rotation, in radians a token, that heads which look back make use of; maxTurn the fastest
	// that heads which match do.
	minTurn, maxTurn = 0.07, 0.01
	// codeScale and slotScale multiply C and Ω in the first layer, matchScale the query and key maps of the last and
	// copyScale its output map.
	codeScale, slotScale, matchScale, copyScale = 0.68, 0.15, 2, 0.8
)

func newCircuit(m *Model, cfg *nn.Config, seed uint64) *circuit {
	c := &circuit{cfg: cfg, back: m.PreviousHeads, match: m.MatchHeads, rng: rand.New(rand.NewPCG(seed, 0xc0de))}
	if c.back > 0 {
		c.code = directions(c.rng, cfg.HeadDim, cfg.HiddenSize)
		all := directions(c.rng, c.back*cfg.HeadDim, cfg.HiddenSize)
		for n := range c.back {
			c.slots = append(c.slots, all[n*cfg.HeadDim:(n+1)*cfg.HeadDim])
		}
	}
	return c
}

// apply writes the heads' part of a tensor over what was drawn.
func (c *circuit) apply(name string, values []float32) {
	if part, ok := strings.CutPrefix(name, "model.layers.0.self_attn."); ok && c.back > 0 {
		c.lookBack(part, values)
	}
	last := fmt.Sprintf("model.layers.%d.self_attn.", c.cfg.NumLayers-1)
	if part, ok := strings.CutPrefix(name, last); ok && c.match > 0 {
		c.lookForMatch(part, values)
	}
}

// lookBack writes the heads of the first layer.
func (c *circuit) lookBack(part string, values []float32) {
	e, d := c.cfg.HeadDim, c.cfg.HiddenSize
	switch part {
	case "q_proj.bias", "k_proj.bias":
		c.setBias(part == "q_proj.bias", values)
	case "v_proj.weight": // [key heads x E, D]
		for head := range c.keyHeads(c.back) {
			c.code.times(codeScale).into(values[head*e*d:])
		}
	case "o_proj.weight": // [D, heads x E]
		width := c.cfg.NumHeads * e
		for head, slot := range c.slots {
			for i, row := range slot {
				for j, x := range row {
					values[j*width+head*e+i] = float32(slotScale * x)
				}
			}
		}
	}
}

func (c *circuit) setBias(query bool, values []float32) {
	e := c.cfg.HeadDim
	a := math.Sqrt(8 * math.Sqrt(float64(e)))
	for pair := range e / 2 {
		turn := c.turn(pair)
		if turn <= minTurn {
			break
		}
		if !query {
			for head := range c.keyHeads(c.back) {
				values[head*e+pair] = float32(a)
			}
			continue
		}
		for head := range c.back {
			back := float64(head+1) * turn
			values[head*e+pair] = float32(a * math.Cos(back))
			values[head*e+pair+e/2] = float32(-a * math.Sin(back))
		}
	}
}

// lookForMatch writes the heads of the last layer.
func (c *circuit) lookForMatch(part string, values []float32) {
	e, d := c.cfg.HeadDim, c.cfg.HiddenSize
	group, width := c.cfg.NumHeads/c.cfg.NumKVHeads, c.cfg.NumHeads*e
	for head := range c.match {
		m := c.matcher(head / group)
		switch part {
		case "q_proj.weight": // [heads x E, D]
			m.query.times(matchScale).into(values[head*e*d:])
		case "k_proj.weight": // [key heads x E, D]
			m.key.times(matchScale).into(values[head/group*e*d:])
		case "v_proj.weight":
			m.value.into(values[head/group*e*d:])
		case "o_proj.weight": // [D, heads x E]
			for i, row := range m.value {
				for j, x := range row {
					values[j*width+head*e+i] = float32(copyScale * x)
				}
			}
		}
	}
}

// matcher holds the maps [E, D] of a head that matches.
type matcher struct{ query, key, value matrix }

// matcher returns the maps of a key head and its query heads; its number fixes what is random.
func (c *circuit) matcher(number int) matcher {
	e, d := c.cfg.HeadDim, c.cfg.HiddenSize
	rng := rand.New(rand.NewPCG(uint64(number), 0x3a7c4))
	maps := matcher{query: zeros(e, d), key: zeros(e, d), value: directions(rng, e, d)}
	for m := range c.back {
		mix := directions(rng, e, e)
		for pair := range e / 2 {
			if c.turn(pair) >= maxTurn {
				clear(mix[pair])
				clear(mix[pair+e/2])
			}
		}
		before := c.code
		if m > 0 {
			before = c.slots[m-1]
		}
		maps.query.add(mix, before)
		maps.key.add(mix, c.slots[m])
	}
	return maps
}

// turn is the angle in radians by which rotary positions turn a pair of coordinates a token.
func (c *circuit) turn(pair int) float64 {
	return math.Pow(c.cfg.RopeTheta, -2*float64(pair)/float64(c.cfg.HeadDim))
}

// keyHeads is the number of key heads that the first query heads use.
func (c *circuit) keyHeads(queryHeads int) int {
	group := c.cfg.NumHeads / c.cfg.NumKVHeads
	return (queryHeads + group - 1) / group
}
