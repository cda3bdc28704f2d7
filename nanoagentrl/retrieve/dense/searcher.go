package dense

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/embed"
)

// Searcher searches an index for queries as text. It is safe for concurrent use.
type Searcher struct {
	index   *Index
	encoder *embed.Encoder
}

var _ retrieve.Searcher = (*Searcher)(nil)

// NewSearcher joins an index and the encoder of its queries, which must be the one that made its vectors; another is an
// *indexfile.MismatchError.
func NewSearcher(index *Index, encoder *embed.Encoder) (*Searcher, error) {
	made := Manifest{Model: index.model}
	if err := made.CheckModel(index.dir, encoder.Model()); err != nil {
		return nil, err
	}
	return &Searcher{index, encoder}, nil
}

// Index returns the index that is searched.
func (s *Searcher) Index() *Index { return s.index }

// Close closes the index and frees the encoder.
func (s *Searcher) Close() error {
	err := s.index.Close()
	s.encoder.Close()
	return err
}

// Search implements retrieve.Searcher. Every query finds topk passages, however far they are; scores are cosines. A
// query without letters or digits, and an empty one, finds nothing. Scores may differ in their sixth digit with the
// other queries of a call, since queries of like length are encoded together.
func (s *Searcher) Search(ctx context.Context, queries []string, topk int) []retrieve.Result {
	results := make([]retrieve.Result, len(queries))
	if topk < 1 {
		return failed(results, retrieve.KindRequest, fmt.Errorf("topk is %d, but must be at least 1", topk))
	}
	var asked []int
	var texts []string
	for i, q := range queries {
		if hasWord(q) {
			asked, texts = append(asked, i), append(texts, q)
		} else {
			results[i].Passages = []episode.Passage{}
		}
	}
	if len(asked) == 0 {
		return results
	}
	vectors, err := s.encoder.Queries(ctx, texts)
	var hits [][]Hit
	if err == nil {
		hits, err = s.index.Search(ctx, vectors, topk)
	}
	if cause := ctx.Err(); cause != nil && errors.Is(err, cause) {
		return failed(results, retrieve.KindCanceled, err)
	}
	if err != nil {
		return failed(results, retrieve.KindIndex, err)
	}
	for k, i := range asked {
		if results[i].Passages, err = s.passages(hits[k]); err != nil {
			results[i] = retrieve.Result{Err: &retrieve.Error{Kind: retrieve.KindIndex, Err: err}}
		}
	}
	return results
}

func (s *Searcher) passages(hits []Hit) ([]episode.Passage, error) {
	passages := make([]episode.Passage, len(hits))
	for i, hit := range hits {
		p, err := s.index.Passage(hit.Doc)
		if err != nil {
			return nil, err
		}
		passages[i] = episode.Passage{ID: p.ID, Contents: p.Contents, Score: float64(hit.Score)}
	}
	return passages, nil
}

func failed(results []retrieve.Result, kind retrieve.Kind, err error) []retrieve.Result {
	for i := range results {
		results[i] = retrieve.Result{Err: &retrieve.Error{Kind: kind, Err: err}}
	}
	return results
}

// hasWord reports whether a query holds a letter or a digit.
func hasWord(query string) bool {
	return strings.ContainsFunc(query, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) })
}
