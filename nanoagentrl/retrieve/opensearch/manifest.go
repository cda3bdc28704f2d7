package opensearch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/opensearch-project/opensearch-go/v4/opensearchapi"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/bm25"
)

// format is raised when the layout of an index changes.
const format = 1

// Manifest says what an index was made from. It lies in the index itself, as _meta of its mapping.
type Manifest struct {
	Format int `json:"format"`
	// Corpora are the files, in order.
	Corpora []bm25.Corpus `json:"corpora"`
	// Passages is their number, once all are there; Complete says that they are.
	Passages int  `json:"passages"`
	Complete bool `json:"complete"`
	// K1 and B are the parameters of BM25.
	K1 float64 `json:"k1"`
	B  float64 `json:"b"`
	// Dimension is the number of components of the vectors; 0 if there are none.
	Dimension int `json:"dimension,omitempty"`
}

// MismatchError says that an index cannot be used for what is asked.
type MismatchError struct {
	// URL and Index name the index.
	URL, Index string
	// Reason says what is wrong with it.
	Reason string
}

// Error names the index, what is wrong and the way out.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("opensearch: the index %s at %s cannot be used: %s", e.Index, e.URL, e.Reason)
}

// wayOut ends the message of an index that belongs to something else.
const wayOut = "; give what it was made from, another name, or make it anew (retriever index --kind opensearch --rebuild)"

func (c *connection) mismatch(reason string, args ...any) error {
	return &MismatchError{URL: c.shown, Index: c.index, Reason: fmt.Sprintf(reason, args...)}
}

// CheckBM25 returns a *MismatchError if the index ranks with other parameters of BM25.
func (x *Index) CheckBM25(k1, b float64) error { return x.sameBM25(&x.manifest, k1, b) }

func (c *connection) sameBM25(m *Manifest, k1, b float64) error {
	if m.K1 != k1 || m.B != b {
		return c.mismatch("it ranks with k1 %g and b %g, not %g and %g"+wayOut, m.K1, m.B, k1, b)
	}
	return nil
}

func (c *connection) sameCorpora(m *Manifest, corpora []bm25.Corpus) error {
	if len(m.Corpora) != len(corpora) {
		return c.mismatch("it was made from %d files, not %d"+wayOut, len(m.Corpora), len(corpora))
	}
	for i, was := range m.Corpora {
		if is := corpora[i]; was.SHA256 != is.SHA256 {
			return c.mismatch("it was made from %s with %d bytes and the SHA-256 %.12s…; %s has %d bytes and %.12s…"+wayOut,
				was.Name, was.Size, was.SHA256, is.Name, is.Size, is.SHA256)
		}
	}
	return nil
}

// readManifest returns nil if there is no index of the name.
func (c *connection) readManifest(ctx context.Context) (*Manifest, error) {
	var answer map[string]struct {
		Mappings struct {
			Meta struct {
				Manifest *Manifest `json:"nanoagentrl"`
			} `json:"_meta"`
		} `json:"mappings"`
	}
	err := retried(ctx, c, http.MethodGet, func() request {
		return opensearchapi.MappingGetReq{Indices: []string{c.index}}
	}, &answer)
	var failure *retrieve.Error
	if errors.As(err, &failure) && failure.Status == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, found := range answer { // one, the index itself or what an alias stands for
		m := found.Mappings.Meta.Manifest
		if m == nil {
			return nil, c.mismatch("it was not made by retriever index, and what it holds is not known; choose another name")
		}
		if m.Format != format {
			return nil, c.mismatch("its format is %d, this program reads %d"+wayOut, m.Format, format)
		}
		return m, nil
	}
	return nil, c.mismatch("its mapping is empty")
}

// meta returns the _meta of a mapping.
func (m *Manifest) meta() map[string]any { return map[string]any{"nanoagentrl": m} }

// create makes an empty index.
func (c *connection) create(ctx context.Context, m *Manifest, shards, replicas int) error {
	properties := map[string]any{
		"id":       map[string]any{"type": "keyword", "index": false, "doc_values": false},
		"contents": map[string]any{"type": "text", "analyzer": "english"},
		"place":    map[string]any{"type": "long", "index": false}, // in the corpora, from 0
	}
	settings := map[string]any{
		"number_of_shards": shards, "number_of_replicas": replicas, "refresh_interval": "-1",
		"max_result_window": MaxTopK,
		"similarity":        map[string]any{"default": map[string]any{"type": "BM25", "k1": m.K1, "b": m.B}},
	}
	mapping := map[string]any{"dynamic": "strict", "_meta": m.meta(), "properties": properties}
	if m.Dimension > 0 {
		settings["knn"] = true
		properties["vector"] = map[string]any{"type": "knn_vector", "dimension": m.Dimension, "method": map[string]any{
			"name": "hnsw", "engine": "lucene", "space_type": "innerproduct"}}
		mapping["_source"] = map[string]any{"excludes": []string{"vector"}}
	}
	body := map[string]any{"settings": map[string]any{"index": settings}, "mappings": mapping}
	return send(ctx, c, http.MethodPut, body, func(b io.Reader) request {
		return opensearchapi.IndicesCreateReq{Index: c.index, Body: b}
	})
}

// finish marks an index as whole.
func (c *connection) finish(ctx context.Context, m *Manifest) error {
	settings := map[string]any{"index": map[string]any{"refresh_interval": nil}}
	err := send(ctx, c, http.MethodPut, settings, func(b io.Reader) request {
		return opensearchapi.SettingsPutReq{Indices: []string{c.index}, Body: b}
	})
	if err != nil {
		return err
	}
	return send(ctx, c, http.MethodPut, map[string]any{"_meta": m.meta()}, func(b io.Reader) request {
		return opensearchapi.MappingPutReq{Indices: []string{c.index}, Body: b}
	})
}

// send makes a request with a JSON body whose answer does not matter.
func send(ctx context.Context, c *connection, method string, value any, build func(io.Reader) request) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("opensearch: %w", err)
	}
	return retried[any](ctx, c, method, func() request { return build(bytes.NewReader(text)) }, nil)
}

// describe reads corpora and returns their names, sizes and digests. progress is told bytes read and all bytes.
func describe(ctx context.Context, paths []string, progress func(read, total int64)) ([]bm25.Corpus, error) {
	corpora := make([]bm25.Corpus, len(paths))
	var read, total int64
	for i, path := range paths {
		path, err := data.CorpusPath(path)
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("opensearch: %w", err)
		}
		corpora[i] = bm25.Corpus{Name: filepath.Base(path), Size: info.Size()}
		total += info.Size()
	}
	for i, path := range paths {
		path, err := data.CorpusPath(path)
		if err != nil {
			return nil, err
		}
		sum, err := digest(ctx, path, func(n int) { read += int64(n); progress(read, total) })
		if err != nil {
			return nil, fmt.Errorf("opensearch: %s: %w", path, err)
		}
		corpora[i].SHA256 = sum
	}
	return corpora, nil
}

func digest(ctx context.Context, path string, progress func(n int)) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum, buffer := sha256.New(), make([]byte, 1<<20)
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := file.Read(buffer)
		sum.Write(buffer[:n])
		progress(n)
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(sum.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
}
