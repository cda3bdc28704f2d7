package generate

import (
	"context"
	"fmt"
	"slices"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
)

// Generator samples from a transformer. Sequences with the same tokens, as the samples of one prompt, are computed
// once and then copied; rows that finish leave the batch and waiting ones take their place; what was computed for a
// sequence is kept between calls, so that a later turn only pays for its new tokens.
//
// A Generator is used by one goroutine at a time. The kept states belong to one set of weights: Release all sequences
// before the weights change.
type Generator struct {
	program *nn.Program
	params  *nn.Params
	tok     tokenizer.Tokenizer
	limits  Limits

	kept      map[*Sequence]*nn.RowState
	keptBytes int
}

// Limits bound what a Generator does at a time.
type Limits struct {
	// Rows is the largest decoding batch.
	Rows int
	// PrefillTokens bounds the tokens of one prefill batch, padding included.
	PrefillTokens int
	// KeepBytes bounds the memory for keys and values kept between calls; a sequence that does not fit is computed
	// again from its tokens.
	KeepBytes int
}

// DefaultLimits suit a laptop.
var DefaultLimits = Limits{Rows: 32, PrefillTokens: 2048, KeepBytes: 2 << 30}

// New returns a Generator for the given weights. Zero limits take their defaults.
func New(program *nn.Program, params *nn.Params, tok tokenizer.Tokenizer, limits Limits) *Generator {
	if limits.Rows <= 0 {
		limits.Rows = DefaultLimits.Rows
	}
	if limits.PrefillTokens <= 0 {
		limits.PrefillTokens = DefaultLimits.PrefillTokens
	}
	if limits.KeepBytes <= 0 {
		limits.KeepBytes = DefaultLimits.KeepBytes
	}
	return &Generator{program: program, params: params, tok: tok, limits: limits, kept: map[*Sequence]*nn.RowState{}}
}

var _ Sampler = (*Generator)(nil)

// Release forgets what is kept for the sequences.
func (g *Generator) Release(seqs []*Sequence) {
	for _, s := range seqs {
		if state, ok := g.kept[s]; ok {
			g.keptBytes -= state.Bytes()
			delete(g.kept, s)
		}
	}
}

// Generate implements Sampler.
func (g *Generator) Generate(ctx context.Context, seqs []*Sequence, opts Options) error {
	if opts.Temperature < 0 {
		return fmt.Errorf("temperature is %g, must not be negative", opts.Temperature)
	}
	limit := g.program.Config().MaxPositions
	if opts.MaxContext > 0 {
		limit = min(limit, opts.MaxContext)
	}
	r := &run{g: g, opts: opts, limit: limit}
	defer r.free()
	for i, s := range seqs {
		if len(s.IDs) == 0 {
			return fmt.Errorf("sequence %d has no tokens to continue", i)
		}
		row := &row{seq: s, matcher: tokenizer.NewStopMatcher(opts.Stops), max: opts.MaxNew}
		if s.MaxNew > 0 {
			row.max = s.MaxNew
		}
		if row.max <= 0 {
			return fmt.Errorf("sequence %d may sample %d tokens, must be at least one", i, row.max)
		}
		s.NewIDs, s.LogProbs, s.Text, s.Stop, s.Reason = nil, nil, "", "", ""
		if len(s.IDs) >= limit {
			s.Reason = ReasonContext
			continue
		}
		r.waiting = append(r.waiting, row)
	}
	for len(r.waiting)+len(r.active) > 0 {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("sampling: %w", err)
		}
		if len(r.waiting) > 0 && len(r.active) <= g.limits.Rows/2 {
			if err := r.admit(ctx); err != nil {
				return err
			}
		}
		if err := r.step(); err != nil {
			return err
		}
		if err := r.retire(); err != nil {
			return err
		}
	}
	return nil
}

// row is a sequence being sampled.
type row struct {
	seq     *Sequence
	matcher *tokenizer.StopMatcher
	max     int
}

// run is one call of Generate. Row i of the cache belongs to active[i]; rows beyond are padding.
type run struct {
	g       *Generator
	opts    Options
	limit   int
	waiting []*row
	active  []*row
	cache   *nn.Cache
}

func (r *run) free() {
	if r.cache != nil {
		r.cache.Free()
	}
}

// admit moves waiting rows into the batch.
func (r *run) admit(ctx context.Context) error {
	n := min(r.g.limits.Rows-len(r.active), len(r.waiting))
	list := r.waiting[:n]
	states, err := r.g.prefill(ctx, list)
	if err != nil {
		return err
	}
	longest := 1
	from := make([]int, bucketRows(len(r.active)+n))
	for i := range from {
		from[i] = -1
		if i < len(r.active) {
			from[i] = i
			longest = max(longest, len(r.active[i].seq.IDs))
		}
	}
	for _, row := range list {
		longest = max(longest, len(row.seq.IDs))
	}
	if err := r.rearrange(from, longest); err != nil {
		return err
	}
	for i, state := range states {
		if state == nil {
			continue
		}
		if err := r.cache.Restore(len(r.active)+i, state); err != nil {
			return err
		}
	}
	r.active, r.waiting = append(r.active, list...), r.waiting[n:]
	return nil
}

// rearrange gives the cache the rows of from and room for a token count of at least longest.
func (r *run) rearrange(from []int, longest int) (err error) {
	length := bucketLength(longest)
	if r.cache == nil {
		r.cache, err = nn.NewCache(r.g.params, len(from), length)
		return err
	}
	old := r.cache
	r.cache = nil
	r.cache, err = old.Rearranged(r.g.params, from, length)
	return err
}

// step samples one token for each active row.
func (r *run) step() error {
	longest := 0
	for _, row := range r.active {
		longest = max(longest, len(row.seq.IDs))
	}
	if longest > r.cache.Length() {
		same := make([]int, r.cache.Rows())
		for i := range same {
			same[i] = i
		}
		if err := r.rearrange(same, longest); err != nil {
			return err
		}
	}
	tokens := make([][]int, r.cache.Rows())
	uniform := make([]float32, r.cache.Rows())
	for i, row := range r.active {
		tokens[i] = row.seq.IDs[len(row.seq.IDs)-1:]
		uniform[i] = Uniform(row.seq.Seed, row.seq.Drawn)
	}
	x, err := r.g.program.Extend(r.g.params, r.cache, tokens, 1)
	if err != nil {
		return err
	}
	defer func() { _ = x.FinalizeAll() }()
	ids, logp, err := r.g.program.Sample(r.g.params, x, r.opts.Temperature, uniform)
	if err != nil {
		return err
	}
	for i, row := range r.active {
		r.accept(row, int(ids[i]), logp[i])
	}
	return nil
}

// accept appends a sampled token to its sequence and decides whether sampling stops there.
func (r *run) accept(row *row, id int, logp float32) {
	s := row.seq
	s.IDs, s.NewIDs, s.LogProbs = append(s.IDs, id), append(s.NewIDs, id), append(s.LogProbs, logp)
	s.Drawn++
	switch {
	case slices.Contains(r.g.program.Config().EOS, id):
		s.Reason = ReasonEOS
	case row.matcher.Feed(r.g.tok.Bytes(id)):
		s.Reason, s.Stop = ReasonStop, row.matcher.Stop()
	case len(s.NewIDs) >= row.max:
		s.Reason = ReasonLength
	case len(s.IDs) >= r.limit:
		s.Reason = ReasonContext
	}
	if s.Reason != "" {
		s.Text = row.matcher.Text()
	}
}

// retire takes finished rows out of the batch, keeping their states, and shrinks the batch when half of it is empty.
func (r *run) retire() error {
	var from []int
	var left []*row
	for i, row := range r.active {
		if row.seq.Reason == "" {
			from, left = append(from, i), append(left, row)
			continue
		}
		if err := r.g.keep(row.seq, r.cache, i); err != nil {
			return err
		}
	}
	if len(left) == len(r.active) {
		return nil
	}
	r.active = left
	if len(left) == 0 {
		r.cache.Free()
		r.cache = nil
		return nil
	}
	longest := 0
	for _, row := range left {
		longest = max(longest, len(row.seq.IDs))
	}
	for len(from) < bucketRows(len(left)) {
		from = append(from, -1)
	}
	if len(from) < r.cache.Rows() {
		return r.rearrange(from, longest)
	}
	return r.cache.Permute(from)
}

// keep saves a row's state for a later call if there is room.
func (g *Generator) keep(s *Sequence, cache *nn.Cache, i int) error {
	g.Release([]*Sequence{s})
	state, err := cache.Save(i)
	if err != nil {
		return err
	}
	if g.keptBytes+state.Bytes() <= g.limits.KeepBytes {
		g.kept[s] = state
		g.keptBytes += state.Bytes()
	}
	return nil
}

// bucketRows rounds a number of rows up to a power of two.
func bucketRows(n int) int {
	rows := 1
	for rows < n {
		rows *= 2
	}
	return rows
}

// bucketLength rounds a cache length up so that few shapes are compiled and the cache is seldom copied.
func bucketLength(n int) int {
	length := 64
	for length < n {
		if step := length / 2; length&(length-1) == 0 {
			length += step
		} else {
			length += length / 3
		}
	}
	return length
}

// Uniform returns draw number n of a seed, in [0, 1), by the splitmix64 generator (Steele, Lea and Flood 2014). Since
// it needs no state, a resumed run draws what the first run would have drawn.
func Uniform(seed uint64, n int) float32 {
	z := seed + (uint64(n)+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	return float32(z>>40) / (1 << 24)
}
