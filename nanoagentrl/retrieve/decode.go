package retrieve

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// decodeResults reads the answer to len(results) queries into results, or returns what is wrong with it. All or
// nothing: results are set only if the whole answer follows the contract.
func decodeResults(answer []byte, topk int, results []Result) *Error {
	var envelope struct {
		Result []json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(answer, &envelope); err != nil {
		return &Error{Kind: KindDecode, Err: fmt.Errorf("%w in %s", err, excerpt(answer))}
	}
	if envelope.Result == nil {
		return &Error{Kind: KindDecode, Err: fmt.Errorf(`no "result" in %s`, excerpt(answer))}
	}
	if len(envelope.Result) != len(results) {
		return &Error{Kind: KindCount, Err: fmt.Errorf("%d results for %d queries", len(envelope.Result), len(results))}
	}
	decoded := make([]Result, len(results))
	for i, raw := range envelope.Result {
		passages, err := decodeHits(raw)
		if err != nil {
			return &Error{Kind: KindDecode, Err: fmt.Errorf("result %d: %w in %s", i, err, excerpt(raw))}
		}
		decoded[i].Passages = passages[:min(topk, len(passages))]
	}
	copy(results, decoded)
	return nil
}

// decodeHits reads the hits of one query and sorts them by descending score. A server asked without return_scores
// gives documents without the envelope; they have score 0 and keep their order.
func decodeHits(raw json.RawMessage) ([]episode.Passage, error) {
	var hits []json.RawMessage
	if err := json.Unmarshal(raw, &hits); err != nil {
		return nil, err
	}
	if hits == nil {
		return nil, errors.New("null instead of a list of hits")
	}
	passages := make([]episode.Passage, len(hits))
	for i, hit := range hits {
		var wrapped struct {
			Document json.RawMessage `json:"document"`
			Score    *float64        `json:"score"`
		}
		if err := json.Unmarshal(hit, &wrapped); err != nil {
			return nil, fmt.Errorf("hit %d: %w", i, err)
		}
		document := wrapped.Document
		if len(document) == 0 {
			document = hit
		}
		passage, err := decodeDocument(document)
		if err != nil {
			return nil, fmt.Errorf("hit %d: %w", i, err)
		}
		if wrapped.Score != nil {
			passage.Score = *wrapped.Score
		}
		passages[i] = passage
	}
	slices.SortStableFunc(passages, func(a, b episode.Passage) int {
		switch {
		case a.Score > b.Score:
			return -1
		case a.Score < b.Score:
			return 1
		}
		return 0
	})
	return passages, nil
}

// decodeDocument reads {"id", "contents"}, or {"id", "title", "text"} as some corpora have it. A document without an
// id or a text is refused: servers report their failures in such forms.
func decodeDocument(raw json.RawMessage) (episode.Passage, error) {
	var document struct {
		ID       json.RawMessage `json:"id"`
		Contents *string         `json:"contents"`
		Title    *string         `json:"title"`
		Text     *string         `json:"text"`
	}
	if err := json.Unmarshal(raw, &document); err != nil {
		return episode.Passage{}, err
	}
	passage := episode.Passage{}
	var number json.Number
	if err := json.Unmarshal(document.ID, &passage.ID); err != nil {
		if err := json.Unmarshal(document.ID, &number); err != nil {
			return episode.Passage{}, errors.New(`a document without an "id"`)
		}
		passage.ID = number.String()
	}
	if passage.ID == "" {
		return episode.Passage{}, errors.New(`a document without an "id"`)
	}
	switch {
	case document.Contents != nil:
		passage.Contents = *document.Contents
	case document.Text != nil && document.Title != nil:
		title, _ := data.SplitContents(*document.Title + "\n") // some have the quotes already
		passage.Contents = "\"" + title + "\"\n" + *document.Text
	case document.Text != nil:
		passage.Contents = *document.Text
	default:
		return episode.Passage{}, fmt.Errorf(`document %q without "contents" or "text"`, passage.ID)
	}
	return passage, nil
}
