package opensearch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/opensearch-project/opensearch-go/v4/opensearchapi"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
)

// maxID is the longest id that OpenSearch takes, in bytes.
const maxID = 512

// item is a passage on its way into the index.
type item struct {
	data.Passage
	place int // in all corpora, from 0
	path  string
	line  int
}

// document is a passage as the index holds it.
type document struct {
	ID       string    `json:"id"`
	Contents string    `json:"contents"`
	Place    int       `json:"place"`
	Vector   []float32 `json:"vector,omitempty"`
}

// sendItems puts passages into the index. Those that the cluster is too busy for are sent again, as is everything
// after a broken connection or an answer that does not come; what was written in spite of it is recognised.
func (b *builder) sendItems(ctx context.Context, items []item, size int64) error {
	var vectors [][]float32
	if b.Embed != nil {
		texts := make([]string, len(items))
		for i := range items {
			texts[i] = items[i].Contents
		}
		var err error
		if vectors, err = embedAll(b.Embed, texts, b.manifest.Dimension); err != nil {
			return fmt.Errorf("opensearch: %w", err)
		}
	}
	again := func(e *retrieve.Error) bool { return temporary(e) || e.Kind == retrieve.KindTimeout }
	open := make([]int, len(items))
	for i := range open {
		open[i] = i
	}
	present := 0
	failure := b.patience.Retry(ctx, again, func() *retrieve.Error {
		left, old, failure := b.bulk(ctx, items, vectors, open)
		open, present = left, present+old
		return failure
	})
	if failure != nil {
		if !again(failure) && errors.As(failure.Err, new(*itemError)) {
			return failure.Err
		}
		return failure
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at.Passages += len(items)
	b.at.Present += present
	b.at.Bytes += size
	b.Progress(b.at)
	return nil
}

// itemError is the refusal of one passage.
type itemError struct {
	*item
	reason string
}

func (e *itemError) Error() string {
	return fmt.Sprintf("opensearch: %s:%d: the passage with id %.100q was refused: %s", e.path, e.line, e.ID, e.reason)
}

// bulk makes one attempt to create the open ones of some passages. It returns those to be sent again, with the
// reason, and how many were there already.
func (b *builder) bulk(ctx context.Context, items []item, vectors [][]float32, open []int) (
	left []int, old int, failure *retrieve.Error) {
	body, err := b.bulkBody(items, vectors, open)
	if err != nil {
		return open, 0, &retrieve.Error{Kind: retrieve.KindRequest, Err: err}
	}
	var answer opensearchapi.BulkResp
	request := opensearchapi.BulkReq{Index: b.index, Body: bytes.NewReader(body)}
	if failure := call(ctx, b.connection, http.MethodPost, request, &answer); failure != nil {
		return open, 0, failure
	}
	if len(answer.Items) != len(open) {
		return open, 0, b.named(&retrieve.Error{Kind: retrieve.KindCount,
			Err: fmt.Errorf("%d results for %d passages", len(answer.Items), len(open))})
	}
	var conflicts []int
	for n, i := range open {
		r := answer.Items[n]["create"]
		reason := fmt.Sprintf("status %d", r.Status)
		if r.Error != nil {
			reason = fmt.Sprintf("%s: %s", r.Error.Type, excerpt(r.Error.Reason))
		}
		answered := b.named(&retrieve.Error{Kind: retrieve.KindStatus, Status: r.Status, Err: &itemError{&items[i], reason}})
		switch {
		case r.Status == http.StatusCreated:
		case r.Status == http.StatusConflict:
			conflicts = append(conflicts, i)
		case temporary(answered):
			left, failure = append(left, i), answered
		default:
			return left, old, answered
		}
	}
	if len(conflicts) == 0 {
		return left, old, failure
	}
	if refused := b.sameItems(ctx, items, conflicts); refused != nil {
		return append(left, conflicts...), old, refused
	}
	return left, len(conflicts), failure
}

func (b *builder) bulkBody(items []item, vectors [][]float32, open []int) ([]byte, error) {
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	lines.SetEscapeHTML(false)
	for _, i := range open {
		doc := document{ID: items[i].ID, Contents: items[i].Contents, Place: items[i].place}
		if vectors != nil {
			doc.Vector = vectors[i]
		}
		action := map[string]any{"create": map[string]any{"_id": items[i].ID}}
		if err := errors.Join(lines.Encode(action), lines.Encode(doc)); err != nil {
			return nil, fmt.Errorf("opensearch: %s:%d: %w", items[i].path, items[i].line, err)
		}
	}
	return body.Bytes(), nil
}

// sameItems makes sure that passages whose ids are taken are these very passages, from an earlier run or from an
// attempt whose answer was lost. Another passage of the same id is an error.
func (b *builder) sameItems(ctx context.Context, items []item, conflicts []int) *retrieve.Error {
	ids := make([]string, len(conflicts))
	for n, i := range conflicts {
		ids[n] = items[i].ID
	}
	text, err := json.Marshal(map[string]any{"ids": ids})
	if err != nil {
		return &retrieve.Error{Kind: retrieve.KindRequest, Err: err}
	}
	var answer struct {
		Docs []struct {
			Source *document `json:"_source"`
		} `json:"docs"`
	}
	request := opensearchapi.MGetReq{Index: b.index, Body: bytes.NewReader(text)}
	if failure := call(ctx, b.connection, http.MethodPost, request, &answer); failure != nil {
		return failure
	}
	if len(answer.Docs) != len(conflicts) {
		return b.named(&retrieve.Error{Kind: retrieve.KindCount,
			Err: fmt.Errorf("%d passages for %d ids", len(answer.Docs), len(conflicts))})
	}
	for n, i := range conflicts {
		there := answer.Docs[n].Source
		if there == nil || there.Place != items[i].place {
			return &retrieve.Error{Kind: retrieve.KindRequest,
				Err: &itemError{&items[i], "another passage has this id; ids must be unique over all corpora"}}
		}
	}
	return nil
}
