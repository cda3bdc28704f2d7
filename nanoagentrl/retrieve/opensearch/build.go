package opensearch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/opensearch-project/opensearch-go/v4/opensearchapi"
	"golang.org/x/sync/errgroup"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
)

// BuildOptions say what index is made of corpora, and where.
type BuildOptions struct {
	// URL and Index name it, as in Options.
	URL, Index string
	// Client says how patient the requests are; its zero fields take 60 s an attempt and 10 retries with waits of up to
	// 30 s, since a cluster that is loaded with passages is often too busy for more.
	Client retrieve.ClientOptions
	// K1 and B are the parameters of BM25.
	K1, B float64
	// Shards is the number of parts the index is spread over, 1 if it is 0; Replicas the number of copies of each.
	Shards, Replicas int
	// Rebuild deletes whatever index has the name. Without it one that belongs to the corpora is taken up or kept.
	Rebuild bool
	// Embed, if it is not nil, encodes passages, so that they can be searched by vector.
	Embed Embed
	// BatchPassages and BatchBytes bound a request: 1,000 passages and 4 MiB if they are 0. As many requests as
	// Client.Parallel are under way at once, so memory is bounded too.
	BatchPassages, BatchBytes int
	// Progress is told how far it is; it may be nil. Calls do not overlap.
	Progress func(Progress)
}

// Progress says how far a build is.
type Progress struct {
	// Checking is true while the corpora are read for their digests, before anything is sent.
	Checking bool
	// Passages are in the index; Present of them were there from an earlier run.
	Passages, Present int
	// Bytes of the corpora are done, of Total.
	Bytes, Total int64
}

func (o BuildOptions) withDefaults() BuildOptions {
	if o.Client.Timeout <= 0 {
		o.Client.Timeout = time.Minute
	}
	if o.Client.Retries == 0 {
		o.Client.Retries = 10
	}
	if o.Client.MaxBackoff <= 0 {
		o.Client.MaxBackoff = 30 * time.Second
	}
	if o.BatchPassages <= 0 {
		o.BatchPassages = 1000
	}
	if o.BatchBytes <= 0 {
		o.BatchBytes = 4 << 20
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	o.Shards = max(o.Shards, 1)
	return o
}

// builder makes one index.
type builder struct {
	BuildOptions
	*connection
	manifest Manifest

	mu sync.Mutex
	at Progress
}

// Build makes an index of corpora and returns what it holds. If it is interrupted, the same call goes on: passages
// that are there already are left as they are, so that no passage ever counts twice in the statistics. An index that
// is finished and belongs to the corpora is kept. An index of other corpora or parameters is a *MismatchError, unless
// Rebuild is set. Ids must be unique over all corpora.
func Build(ctx context.Context, corpora []string, o BuildOptions) (Manifest, error) {
	o = o.withDefaults()
	c, err := connect(o.URL, o.Index, o.Client)
	if err != nil {
		return Manifest{}, err
	}
	defer c.Close()
	b := &builder{BuildOptions: o, connection: c}
	return b.manifest, b.build(ctx, corpora)
}

func (b *builder) build(ctx context.Context, paths []string) error {
	if len(paths) == 0 {
		return errors.New("opensearch: there is no corpus")
	}
	if _, err := b.version(ctx); err != nil {
		return err
	}
	corpora, err := describe(ctx, paths, func(read, total int64) {
		b.Progress(Progress{Checking: true, Bytes: read, Total: total})
	})
	if err != nil {
		return err
	}
	b.manifest = Manifest{Format: format, Corpora: corpora, K1: b.K1, B: b.B}
	for _, c := range corpora {
		b.at.Total += c.Size
	}
	done, err := b.prepare(ctx)
	if done || err != nil {
		return err
	}
	total, err := b.load(ctx, paths)
	if err != nil {
		return err
	}
	return b.complete(ctx, paths, total)
}

// prepare takes up an index that is there, or creates one. done says that it is finished already.
func (b *builder) prepare(ctx context.Context) (done bool, err error) {
	if b.Embed != nil {
		if err := b.findDimension(ctx); err != nil {
			return false, err
		}
	}
	var there *Manifest
	if b.Rebuild {
		err = b.remove(ctx)
	} else {
		there, err = b.readManifest(ctx)
	}
	if err != nil {
		return false, err
	}
	if there == nil {
		return false, b.create(ctx, &b.manifest, b.Shards, b.Replicas)
	}
	if err := errors.Join(b.sameCorpora(there, b.manifest.Corpora), b.sameBM25(there, b.K1, b.B)); err != nil {
		return false, err
	}
	if there.Dimension != b.manifest.Dimension {
		return false, b.mismatch("its vectors have %d components, not %d"+wayOut, there.Dimension, b.manifest.Dimension)
	}
	b.manifest = *there
	if !there.Complete {
		return false, nil
	}
	return true, (&Index{connection: b.connection, manifest: *there}).Verify(ctx)
}

// findDimension makes sure that the cluster takes vectors, and asks the encoder how long they are.
func (b *builder) findDimension(ctx context.Context) error {
	has, err := b.hasKNN(ctx)
	if err != nil {
		return err
	}
	if !has {
		return fmt.Errorf("opensearch: the nodes at %s do not have the k-NN plugin; install it there, or index "+
			"without vectors", b.shown)
	}
	vectors, err := embedAll(b.Embed, []string{"a passage"}, 0)
	if err != nil {
		return fmt.Errorf("opensearch: %w", err)
	}
	b.manifest.Dimension = len(vectors[0])
	return nil
}

func (b *builder) remove(ctx context.Context) error {
	err := retried[any](ctx, b.connection, http.MethodDelete, func() request {
		return opensearchapi.IndicesDeleteReq{Indices: []string{b.index}}
	}, nil)
	var failure *retrieve.Error
	if errors.As(err, &failure) && failure.Status == http.StatusNotFound {
		return nil
	}
	return err
}

// load sends all passages and returns their number.
func (b *builder) load(ctx context.Context, paths []string) (int, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(b.patience.Parallel)
	place := 0
	read := func() error {
		for i, path := range paths {
			path, err := data.CorpusPath(path)
			if err != nil {
				return err
			}
			var sum string
			if place, sum, err = b.loadFile(ctx, group, path, place); err != nil {
				return err
			}
			if sum != b.manifest.Corpora[i].SHA256 {
				return fmt.Errorf("opensearch: %s changed while it was read; make the index anew (--rebuild)", path)
			}
		}
		return nil
	}
	err := read()
	// What is under way failed first if it ended the context; a fault of the corpus lets it finish.
	if sent := group.Wait(); sent != nil {
		err = sent
	}
	return place, err
}

// loadFile sends the passages of one corpus, the first of which has the given place. It returns the place after them
// and the digest of the file.
func (b *builder) loadFile(ctx context.Context, group *errgroup.Group, path string, place int) (int, string, error) {
	corpus, err := data.OpenCorpus(path)
	if err != nil {
		return place, "", err
	}
	defer corpus.Close()
	sum := sha256.New()
	for ctx.Err() == nil {
		lines, err := corpus.Next(b.BatchPassages, b.BatchBytes)
		if errors.Is(err, io.EOF) {
			return place, hex.EncodeToString(sum.Sum(nil)), nil
		}
		if err != nil {
			return place, "", err
		}
		sum.Write(lines.Text)
		passages, lineOf, err := lines.Passages()
		if err != nil {
			return place, "", err
		}
		if len(passages) == 0 { // blank lines
			continue
		}
		items := make([]item, len(passages))
		for i, p := range passages {
			items[i] = item{p, place, path, lineOf[i]}
			if place++; len(p.ID) > maxID {
				return place, "", &itemError{&items[i], fmt.Sprintf("an id has at most %d bytes", maxID)}
			}
		}
		group.Go(func() error { return b.sendItems(ctx, items, lines.End-lines.Begin) })
	}
	return place, "", ctx.Err()
}

// complete makes the passages visible, counts them and marks the index as whole.
func (b *builder) complete(ctx context.Context, paths []string, total int) error {
	if total == 0 {
		return fmt.Errorf("opensearch: %v holds no passages", paths)
	}
	err := retried[any](ctx, b.connection, http.MethodPost, func() request {
		return opensearchapi.IndicesRefreshReq{Index: []string{b.index}}
	}, nil)
	if err != nil {
		return err
	}
	count, err := b.count(ctx)
	if err != nil {
		return err
	}
	if count != total {
		return b.mismatch("it holds %d passages after %d were sent; something else writes to it, or the corpus changed; "+
			"make it anew (--rebuild)", count, total)
	}
	b.manifest.Passages, b.manifest.Complete = total, true
	return b.finish(ctx, &b.manifest)
}
