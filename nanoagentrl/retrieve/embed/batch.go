package embed

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn/bert"
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

// errClosed is the error of encoding with an encoder that was closed.
var errClosed = errors.New("the encoder was closed")

// encode tokenizes the texts, lays them into batches, and runs two batches at a time: one may compute on all cores while
// the other does what only one can.
func (e *Encoder) encode(ctx context.Context, prefix string, texts []string, progress func(done int)) ([]float32, error) {
	e.use.RLock()
	defer e.use.RUnlock()
	if e.closing.Load() {
		return nil, errClosed
	}
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
			if e.closing.Load() {
				stop(errClosed)
				return
			}
			i := int(next.Add(1)) - 1
			if i >= len(batches) {
				return
			}
			if err := e.run(batches[i], tokens, out); err != nil {
				stop(err)
				return
			}
			if n := done.Add(int64(batches[i].texts())); progress != nil {
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
	pack := bert.NewPack(b.height, b.width, b.slots)
	var texts []int
	for row, members := range b.rows {
		column := 0
		for _, text := range members {
			pack.Put(len(texts), row, column, tokens[text])
			column += len(tokens[text])
			texts = append(texts, text)
		}
	}
	vectors, err := e.net.Encode(pack)
	if err != nil {
		return err
	}
	dim := e.model.Dim
	for slot, text := range texts {
		v := vectors[slot*dim : (slot+1)*dim]
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

// batch is a part of the texts that is encoded at once: those of each row, and the shape they are padded to.
type batch struct {
	rows                 [][]int
	height, width, slots int
}

// texts returns the number of texts.
func (b *batch) texts() (n int) {
	for _, row := range b.rows {
		n += len(row)
	}
	return n
}

// least is the smallest width of a row and the smallest number of slots of a batch.
const least = 16

// plan lays texts of the given lengths in tokens into rows, several to a row (Krell and others, arXiv:2107.02027), and
// rows into batches of at most budget tokens. Hardly anything is padding, and few shapes are compiled: the width is the
// power of two that holds the longest text, at most longest; the other sizes are powers of two. The plan follows from
// the lengths alone.
func plan(lengths []int, longest, budget int) (batches []batch) {
	if len(lengths) == 0 {
		return nil
	}
	most := slices.Max(lengths)
	width := min(max(least, power(most)), max(longest, most))
	height := max(1, budget/width)
	for rows := range slices.Chunk(pack(lengths, width), height) {
		b := batch{rows: rows, height: min(power(len(rows)), height), width: width}
		b.slots = max(least, power(b.texts()))
		batches = append(batches, b)
	}
	return batches
}

// pack lays texts into rows of a width, the longest first, each where it leaves the least room.
func pack(lengths []int, width int) (rows [][]int) {
	order := make([]int, len(lengths))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return lengths[b] - lengths[a] })
	open := make([][]int, width+1) // rows by the room that is left in them
	for _, text := range order {
		length := lengths[text]
		room := length
		for room <= width && len(open[room]) == 0 {
			room++
		}
		row := len(rows)
		if room > width {
			room, rows = width, append(rows, nil)
		} else {
			last := len(open[room]) - 1
			row, open[room] = open[room][last], open[room][:last]
		}
		rows[row] = append(rows[row], text)
		open[room-length] = append(open[room-length], row)
	}
	return rows
}

// power returns the smallest power of two that is at least n.
func power(n int) int { return 1 << bits.Len(uint(n-1)) }
