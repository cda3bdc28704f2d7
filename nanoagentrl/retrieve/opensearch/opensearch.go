// Package opensearch searches passages that lie in an OpenSearch cluster, and puts them there: for corpora that one
// machine does not hold, or that several share.
//
// Passages are ranked by BM25 with our k1 and b over the server's English analyzer, which is the analysis of package
// analysis, or by the inner product of vectors where the cluster has the k-NN plugin. Shards do not show: term
// statistics are those of the whole index (dfs_query_then_fetch), and equal scores stand in the order of the corpus.
//
// OpenSearch 2 multiplies BM25 scores by k1 + 1, which Lucene left out from version 8 on, and OpenSearch from version
// 3. Here they are divided by it, so that they are those of BM25 in process up to the rounding of float32.
package opensearch

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/opensearch-project/opensearch-go/v4/opensearchapi"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
)

// MaxTopK is the largest topk of a search, OpenSearch's index.max_result_window.
const MaxTopK = 10000

// Embed returns a vector for each text; all have the same number of components.
type Embed func(texts []string) ([][]float32, error)

// Options say which index is searched and how.
type Options struct {
	// URL is the address of a node, such as http://127.0.0.1:9200, or several separated by commas, with user:password@ in
	// front of the host where the cluster asks for it.
	URL string
	// Index is the name of the index.
	Index string
	// Client says how patient searches are, as for any other server; a status of 429 is tried again as well.
	Client retrieve.ClientOptions
	// Corpora, if there are any, are the files that the index must have been made from, in order.
	Corpora []string
	// Embed, if it is not nil, encodes queries, and passages are ranked by the inner product with their vectors.
	Embed Embed
}

// Index searches an index of a cluster. It is safe for concurrent use.
type Index struct {
	*connection
	manifest Manifest
	embed    Embed
	// factor is what the server's BM25 scores are larger by.
	factor float64
}

var _ retrieve.Searcher = (*Index)(nil)

// Open connects to a cluster and makes sure that the index is whole: made by Build and finished, with as many
// passages as it was made of, and from the corpora of the options. An index that is not is a *MismatchError; whatever
// goes wrong with the cluster is a *retrieve.Error.
func Open(ctx context.Context, o Options) (*Index, error) {
	c, err := connect(o.URL, o.Index, o.Client)
	if err != nil {
		return nil, err
	}
	x := &Index{connection: c, embed: o.Embed, factor: 1}
	if err := x.open(ctx, o); err != nil {
		c.Close()
		return nil, err
	}
	return x, nil
}

func (x *Index) open(ctx context.Context, o Options) error {
	major, err := x.version(ctx)
	if err != nil {
		return err
	}
	manifest, err := x.readManifest(ctx)
	if err != nil {
		return err
	}
	if manifest == nil {
		return x.mismatch("there is no such index; make it with retriever index --kind opensearch")
	}
	x.manifest = *manifest
	if major < 3 {
		x.factor = x.manifest.K1 + 1
	}
	if x.embed != nil && x.manifest.Dimension == 0 {
		return x.mismatch("its passages have no vectors")
	}
	if len(o.Corpora) > 0 {
		corpora, err := describe(ctx, o.Corpora, func(int64, int64) {})
		if err != nil {
			return err
		}
		if err := x.sameCorpora(&x.manifest, corpora); err != nil {
			return err
		}
	}
	return x.Verify(ctx)
}

// Verify makes sure that the index is finished and holds as many passages as it was made of.
func (x *Index) Verify(ctx context.Context) error {
	if !x.manifest.Complete {
		return x.mismatch("it is not finished; the command that made it goes on where it stopped")
	}
	count, err := x.count(ctx)
	if err != nil {
		return err
	}
	if count != x.manifest.Passages {
		return x.mismatch("it holds %d passages and was made of %d", count, x.manifest.Passages)
	}
	return nil
}

// Manifest returns what the index was made from.
func (x *Index) Manifest() Manifest { return x.manifest }

// Len returns the number of passages.
func (x *Index) Len() int { return x.manifest.Passages }

// version returns the major version of the server, which must be an OpenSearch.
func (c *connection) version(ctx context.Context) (int, error) {
	var info opensearchapi.InfoResp
	if err := retried(ctx, c, "GET", func() request { return opensearchapi.InfoReq{} }, &info); err != nil {
		return 0, fmt.Errorf("no OpenSearch answers; is the cluster up, and is this its address? %w", err)
	}
	if info.Version.Distribution != "opensearch" {
		return 0, fmt.Errorf("opensearch: %s is %q in version %q, and not an OpenSearch", c.shown, info.Version.Distribution,
			info.Version.Number)
	}
	first, _, _ := strings.Cut(info.Version.Number, ".")
	major, err := strconv.Atoi(first)
	if err != nil {
		return 0, fmt.Errorf("opensearch: %s says it has version %q", c.shown, info.Version.Number)
	}
	return major, nil
}

// hasKNN reports whether the nodes have the plugin of vector search.
func (c *connection) hasKNN(ctx context.Context) (bool, error) {
	var plugins []opensearchapi.CatPluginResp
	if err := retried(ctx, c, "GET", func() request { return opensearchapi.CatPluginsReq{} }, &plugins); err != nil {
		return false, err
	}
	for _, p := range plugins {
		if strings.Contains(strings.ToLower(p.Component), "knn") {
			return true, nil
		}
	}
	return false, nil
}

// count returns the number of passages that searches see.
func (c *connection) count(ctx context.Context) (int, error) {
	var answer opensearchapi.IndicesCountResp
	err := retried(ctx, c, "GET", func() request {
		return opensearchapi.IndicesCountReq{Indices: []string{c.index}}
	}, &answer)
	if err != nil {
		return 0, err
	}
	if answer.Shards.Failed > 0 {
		return 0, c.named(&retrieve.Error{Kind: retrieve.KindStatus, Status: 503,
			Err: fmt.Errorf("%d of %d shards did not answer", answer.Shards.Failed, answer.Shards.Total)})
	}
	return answer.Count, nil
}
