package embed

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
)

// Queries returns the vectors of queries, one after the other, [len(texts), Dim].
func (e *Encoder) Queries(ctx context.Context, texts []string) ([]float32, error) {
	return e.encode(ctx, e.model.QueryPrefix, texts, nil)
}

// Passages returns the vectors of passages, [len(texts), Dim]. progress, if not nil, is told how many texts are done;
// it may be called from several goroutines.
func (e *Encoder) Passages(ctx context.Context, texts []string, progress func(done int)) ([]float32, error) {
	return e.encode(ctx, e.model.PassagePrefix, texts, progress)
}

// Tokens returns the ids that the encoder sees of each text, without a prefix.
func (e *Encoder) Tokens(texts []string) [][]int32 { return e.tokenize("", texts) }

// encode tokenizes the texts, puts those of like length together, and runs two batches at a time: one may compute on
// all cores while the other does what only one can.
func (e *Encoder) encode(ctx context.Context, prefix string, texts []string, progress func(done int)) ([]float32, error) {
	tokens := e.tokenize(prefix, texts)
	lengths := make([]int, len(tokens))
	for i, ids := range tokens {
		lengths[i] = len(ids)
	}
	batches := plan(lengths, e.model.MaxTokens, budget(e.dev.Kind))
	out := make([]float32, len(texts)*e.model.Dim)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next, done atomic.Int64
	work := func() {
		for ctx.Err() == nil {
			i := int(next.Add(1)) - 1
			if i >= len(batches) {
				return
			}
			if err := e.run(batches[i], tokens, out); err != nil {
				stop(err)
				return
			}
			if n := done.Add(int64(len(batches[i].texts))); progress != nil {
				progress(int(n))
			}
		}
	}
	var group sync.WaitGroup
	for range min(2, len(batches)) {
		group.Go(work)
	}
	group.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return out, nil
}

// run encodes a batch into its places in out.
func (e *Encoder) run(b batch, tokens [][]int32, out []float32) error {
	ids, lengths := make([]int32, b.rows*b.width), make([]int32, b.rows)
	for row := range lengths {
		lengths[row] = 1 // of padding
		if row < len(b.texts) {
			lengths[row] = int32(copy(ids[row*b.width:], tokens[b.texts[row]]))
		}
	}
	vectors, err := e.net.Encode(ids, lengths, b.width)
	if err != nil {
		return err
	}
	dim := e.model.Dim
	for row, text := range b.texts {
		v := vectors[row*dim : (row+1)*dim]
		if !(v[0]-v[0] == 0) { // NaN or infinite
			return fmt.Errorf("the encoder %s gave a vector that is no number; its weights are damaged", e.model.Name)
		}
		copy(out[text*dim:], v)
	}
	return nil
}

// tokenize cuts the texts on all cores.
func (e *Encoder) tokenize(prefix string, texts []string) [][]int32 {
	tokens := make([][]int32, len(texts))
	var next atomic.Int64
	const share = 64
	work := func() {
		for {
			end := int(next.Add(share))
			if end-share >= len(texts) {
				return
			}
			for i := end - share; i < min(end, len(texts)); i++ {
				text := strings.TrimSpace(texts[i])
				if e.lowercase {
					text = strings.ToLower(text)
				}
				tokens[i] = e.tokenizer.Encode(prefix+text, e.model.MaxTokens)
				if len(tokens[i]) == 0 { // possible without special tokens only
					tokens[i] = []int32{0}
				}
			}
		}
	}
	var group sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), (len(texts)+share-1)/share) {
		group.Go(work)
	}
	group.Wait()
	return tokens
}

// budget returns the number of tokens of a batch: on a CPU what keeps the activations of a block in its cache.
func budget(kind device.Kind) int {
	if kind == device.CUDA {
		return 1 << 15
	}
	return 1 << 10
}

// batch is a part of the texts that is encoded at once: their places, and the shape they are padded to.
type batch struct {
	texts       []int
	rows, width int
}

// manyTexts is the number of texts from which the time to compile more shapes is worth the padding it saves.
const manyTexts = 4096

// plan puts texts of the given lengths in tokens into batches, the longest first. Texts are padded to one of few
// widths, at most longest, and rows are filled up to one of few numbers, so that few shapes are compiled. The plan
// follows from the lengths alone.
func plan(lengths []int, longest, budget int) (batches []batch) {
	order := make([]int, len(lengths))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return lengths[b] - lengths[a] })
	step := 32
	if len(lengths) >= manyTexts {
		step = 16
	}
	for len(order) > 0 {
		width := min(bucket(lengths[order[0]], step), max(longest, lengths[order[0]]))
		most := max(1, budget/width)
		n := 1
		for n < min(most, len(order)) && 4*lengths[order[n]] >= 3*(width-step) {
			n++
		}
		rows := 1
		for rows < n {
			rows *= 2
		}
		batches = append(batches, batch{texts: order[:n], rows: min(rows, most), width: width})
		order = order[n:]
	}
	return batches
}

// bucket rounds a length up.
func bucket(n, step int) int {
	if n <= 64 {
		step = 16
	}
	return (n + step - 1) / step * step
}
