package dense

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"gonum.org/v1/gonum/blas/blas32"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/embed"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/indexfile"
)

// Index holds passages and their vectors. It is not changed after it was made, so it is safe for concurrent use; Close
// waits for searches under way.
type Index struct {
	dim, n   int
	vectors  []byte
	passages func(doc int) (data.Passage, error)
	// model is that of the vectors.
	model embed.Model

	// dir, manifest and files are empty in memory.
	dir      string
	manifest *Manifest
	files    *indexfile.Files
}

// New makes an index in memory. The slice is kept, not copied; the vectors take 2 bytes a value. progress, if not nil,
// is told how many passages are done.
func New(ctx context.Context, corpus []data.Passage, encoder *embed.Encoder, progress func(done int)) (*Index, error) {
	if len(corpus) == 0 {
		return nil, errors.New("dense search needs at least one passage")
	}
	x := &Index{dim: encoder.Dim(), n: len(corpus), model: encoder.Model(),
		passages: func(doc int) (data.Passage, error) { return corpus[doc], nil }}
	for lot := range slices.Chunk(corpus, lotPassages) {
		done := len(x.vectors) / (2 * x.dim)
		vectors, err := encodeLot(ctx, encoder, lot, func(n int) {
			if progress != nil {
				progress(done + n)
			}
		})
		if err != nil {
			return nil, err
		}
		x.vectors = append(x.vectors, vectors...)
	}
	return x, nil
}

// encodeLot returns the vectors of passages as they are stored.
func encodeLot(ctx context.Context, encoder *embed.Encoder, lot []data.Passage, progress func(done int)) ([]byte, error) {
	texts := make([]string, len(lot))
	for i, p := range lot {
		texts[i] = p.Contents
	}
	vectors, err := encoder.Passages(ctx, texts, progress)
	if err != nil {
		return nil, err
	}
	return appendHalf(make([]byte, 0, 2*len(vectors)), vectors), nil
}

// Open opens the index in a folder that Build made. Only what a search touches is read from the disk; the places of the
// passages are checked, Verify checks the rest. Close it when it is no longer used.
func Open(dir string) (_ *Index, err error) {
	m, err := ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	files, err := indexfile.Map(dir, m.Parts)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, files.Close())
		}
	}()
	x := &Index{dim: m.Model.Dim, n: m.Passages, model: m.Model, dir: dir, manifest: m, files: files}
	stored := new(indexfile.Passages)
	for name, target := range map[string]*[]byte{partVectors: &x.vectors, indexfile.PartPlaces: &stored.Places,
		indexfile.PartPassages: &stored.Texts} {
		if *target, err = files.Part(name); err != nil {
			return nil, err
		}
	}
	if err := files.Check(context.Background(), indexfile.PartPlaces); err != nil {
		return nil, err
	}
	if x.n < 1 || x.dim < 1 || len(stored.Places) != 8*(x.n+1) || len(x.vectors) != 2*x.dim*x.n {
		return nil, indexfile.Damaged(dir, fmt.Errorf("its parts are not those of %d passages with vectors of %d values",
			x.n, x.dim))
	}
	x.passages = stored.Passage
	return x, nil
}

// Len returns the number of passages, Dim that of the values of a vector.
func (x *Index) Len() int { return x.n }

// Dim returns the number of values of a vector.
func (x *Index) Dim() int { return x.dim }

// Model describes the encoder that made the vectors.
func (x *Index) Model() embed.Model { return x.model }

// Manifest returns the description of an index in a folder; nil for one in memory.
func (x *Index) Manifest() *Manifest { return x.manifest }

// Bytes returns the size of the vectors.
func (x *Index) Bytes() int64 { return int64(len(x.vectors)) }

// Verify reads the whole index and compares its checksums. An index in memory has none.
func (x *Index) Verify(ctx context.Context) error {
	if x.files == nil {
		return nil
	}
	return x.files.Verify(ctx)
}

// Close waits for searches under way and unmaps the files.
func (x *Index) Close() error {
	if x.files == nil {
		return nil
	}
	return x.files.Close()
}

func (x *Index) hold() error {
	if x.files == nil {
		return nil
	}
	return x.files.Hold()
}

func (x *Index) release() {
	if x.files != nil {
		x.files.Release()
	}
}

// Passage returns passage doc, counted from 0 in the order of the corpus.
func (x *Index) Passage(doc int) (data.Passage, error) {
	if doc < 0 || doc >= x.n {
		return data.Passage{}, fmt.Errorf("there is no passage %d among %d", doc, x.n)
	}
	if err := x.hold(); err != nil {
		return data.Passage{}, err
	}
	defer x.release()
	return x.passages(doc)
}

// Hit is a passage with its score, the product of its vector and the query's.
type Hit struct {
	Doc   int
	Score float32
}

// better orders hits by descending score; those of equal score stand in the order of the corpus.
func better(a, b Hit) int { return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Doc, b.Doc)) }

// blockPassages is the number of passages whose vectors are widened to float32 at once, for all queries: they stay in
// the cache while they are multiplied. Workers take that many at a time.
const blockPassages = 128

// Search returns the topk best passages of each query, whose vectors stand one after the other, [queries, Dim]. All
// cores share the passages. A score does not depend on the other queries, nor on the number of cores.
func (x *Index) Search(ctx context.Context, queries []float32, topk int) ([][]Hit, error) {
	if len(queries)%x.dim != 0 || topk < 1 {
		return nil, fmt.Errorf("dense search: %d values are not vectors of %d, or topk %d is below 1", len(queries), x.dim, topk)
	}
	if err := x.hold(); err != nil {
		return nil, err
	}
	defer x.release()
	count := len(queries) / x.dim
	topk = min(topk, x.n)
	var next atomic.Int64
	workers := min(runtime.GOMAXPROCS(0), (x.n+blockPassages-1)/blockPassages)
	found := make([][]best, workers)
	var group sync.WaitGroup
	for w := range workers {
		found[w] = make([]best, count)
		group.Go(func() {
			block := make([]float32, blockPassages*x.dim)
			for ctx.Err() == nil {
				begin := int(next.Add(blockPassages)) - blockPassages
				if begin >= x.n {
					return
				}
				x.scan(begin, min(begin+blockPassages, x.n), block, queries, found[w], topk)
			}
		})
	}
	group.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	hits := make([][]Hit, count)
	for q := range hits {
		for w := range workers {
			hits[q] = append(hits[q], found[w][q]...)
		}
		slices.SortFunc(hits[q], better)
		hits[q] = slices.Clip(hits[q][:min(topk, len(hits[q]))])
	}
	return hits, nil
}

// scan compares the passages from begin to end with all queries.
func (x *Index) scan(begin, end int, block, queries []float32, found []best, topk int) {
	block = block[:(end-begin)*x.dim]
	fromHalf(block, x.vectors[2*begin*x.dim:])
	for q := range found {
		query := blas32.Vector{N: x.dim, Data: queries[q*x.dim : (q+1)*x.dim], Inc: 1}
		for doc := begin; doc < end; doc++ {
			row := block[(doc-begin)*x.dim:]
			score := blas32.Dot(query, blas32.Vector{N: x.dim, Data: row[:x.dim], Inc: 1})
			if score != score { // NaN sorts last
				score = float32(math.Inf(-1))
			}
			found[q].offer(Hit{doc, score}, topk)
		}
	}
}

// best is a heap of the best hits so far, the worst of them first.
type best []Hit

func (b *best) offer(h Hit, topk int) {
	s := *b
	if len(s) < topk {
		s = append(s, h)
		for i := len(s) - 1; i > 0 && better(s[i], s[(i-1)/2]) > 0; i = (i - 1) / 2 {
			s[i], s[(i-1)/2] = s[(i-1)/2], s[i]
		}
		*b = s
		return
	}
	if better(h, s[0]) > 0 {
		return
	}
	s[0] = h
	for i := 0; ; {
		worst := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(s) && better(s[child], s[worst]) > 0 {
				worst = child
			}
		}
		if worst == i {
			return
		}
		s[i], s[worst] = s[worst], s[i]
		i = worst
	}
}
