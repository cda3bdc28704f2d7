package generate

import (
	"context"
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

// job is a token sequence to be computed: all tokens but the last, which the first decoding step takes.
type job struct {
	ids   []int
	start *nn.RowState // what is known already, nil for nothing
	state *nn.RowState
}

func (j *job) known() int {
	if j.start == nil {
		return 0
	}
	return j.start.Tokens
}

// prefill returns the state of each row before its last token, nil where there is none. Rows with equal tokens share
// one computation.
func (g *Generator) prefill(ctx context.Context, rows []*row) ([]*nn.RowState, error) {
	jobOf := make([]*job, len(rows))
	byIDs := map[string]*job{}
	var todo []*job
	for i, r := range rows {
		s := r.seq
		before := s.IDs[:len(s.IDs)-1]
		j := &job{ids: before, start: g.kept[s]}
		if j.start == nil {
			key := idKey(before)
			if shared, ok := byIDs[key]; ok {
				jobOf[i] = shared
				continue
			}
			byIDs[key] = j
		}
		g.Release([]*Sequence{s})
		jobOf[i] = j
		if len(before) == j.known() {
			j.state = j.start
			continue
		}
		todo = append(todo, j)
	}
	// Similar lengths together, so that little is padding.
	sort.SliceStable(todo, func(a, b int) bool {
		return len(todo[a].ids)-todo[a].known() < len(todo[b].ids)-todo[b].known()
	})
	for len(todo) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("reading prompts: %w", err)
		}
		n := g.fitting(todo)
		if err := g.prefillBatch(todo[:n]); err != nil {
			return nil, err
		}
		todo = todo[n:]
	}
	states := make([]*nn.RowState, len(rows))
	for i, j := range jobOf {
		states[i] = j.state
	}
	return states, nil
}

// fitting returns how many of the jobs, at least one, go into one batch.
func (g *Generator) fitting(jobs []*job) int {
	n := 1
	for n < len(jobs) && n < g.limits.Rows {
		width := nn.Bucket(len(jobs[n].ids) - jobs[n].known())
		if bucketRows(n+1)*width > g.limits.PrefillTokens {
			break
		}
		n++
	}
	return n
}

func (g *Generator) prefillBatch(jobs []*job) error {
	width, longest := 1, 1
	for _, j := range jobs {
		width = max(width, len(j.ids)-j.known())
		longest = max(longest, len(j.ids))
	}
	cache, err := nn.NewCache(g.params, bucketRows(len(jobs)), bucketLength(longest))
	if err != nil {
		return err
	}
	defer cache.Free()
	tokens := make([][]int, cache.Rows())
	for i, j := range jobs {
		if j.start != nil {
			if err := cache.Restore(i, j.start); err != nil {
				return err
			}
		}
		tokens[i] = j.ids[j.known():]
	}
	x, err := g.program.Extend(g.params, cache, tokens, nn.Bucket(width))
	if err != nil {
		return err
	}
	_ = x.FinalizeAll() // Only the cache is wanted.
	for i, j := range jobs {
		if j.state, err = cache.Save(i); err != nil {
			return err
		}
	}
	return nil
}

// idKey makes a map key of token ids.
func idKey(ids []int) string {
	key := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		key = binary.LittleEndian.AppendUint32(key, uint32(id))
	}
	return string(key)
}
