package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Limits bound what one request may ask for, and how many may ask at once. Zero fields take the values of DefaultLimits.
type Limits struct {
	// Body is the size of a request in bytes, Batch the number of its queries, Query the size of each in bytes.
	Body         int64
	Batch, Query int
	// TopK is the largest number of passages for a query.
	TopK int
	// Concurrent is the number of requests that search at the same time, Waiting the number of those that wait for it.
	Concurrent, Waiting int
}

// DefaultLimits returns 32 MiB, 8,192 queries of 64 KiB, 1,000 passages, 16 requests at once and 1,024 waiting.
func DefaultLimits() Limits {
	return Limits{Body: 32 << 20, Batch: 8192, Query: 64 << 10, TopK: 1000, Concurrent: 16, Waiting: 1024}
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	if l.Body <= 0 {
		l.Body = d.Body
	}
	for _, field := range []struct {
		value    *int
		fallback int
	}{{&l.Batch, d.Batch}, {&l.Query, d.Query}, {&l.TopK, d.TopK}, {&l.Concurrent, d.Concurrent}, {&l.Waiting, d.Waiting}} {
		if *field.value <= 0 {
			*field.value = field.fallback
		}
	}
	return l
}

// request is what a client asks for.
type request struct {
	queries []string
	topk    int
	scores  bool
}

const example = `{"queries": ["..."], "topk": 3, "return_scores": true}`

// decodeRequest reads the body of a request in the Search-R1 form. One query may also stand as "query", as SkyRL's client
// sends it; keys that are not known are passed over. topk, if absent or null, is the given one. What is wrong with a
// request is an error in words for its sender.
func decodeRequest(body []byte, topk int, limits Limits) (*request, error) {
	var form struct {
		Queries []*string `json:"queries"`
		Query   *string   `json:"query"`
		TopK    *float64  `json:"topk"`
		Scores  *bool     `json:"return_scores"`
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	if err := decoder.Decode(&form); err != nil {
		return nil, fmt.Errorf("the body is not a request: %s; want %s", inWords(err), example)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the body goes on after the request; want one object, %s", example)
	}
	r := &request{topk: topk, scores: form.Scores != nil && *form.Scores}
	switch {
	case form.Query != nil && form.Queries != nil:
		return nil, errors.New(`give "queries" or "query", not both`)
	case form.Query != nil:
		r.queries = []string{*form.Query}
	case form.Queries == nil:
		return nil, fmt.Errorf(`there are no "queries"; want %s`, example)
	}
	for i, query := range form.Queries {
		if query == nil {
			return nil, fmt.Errorf(`"queries"[%d] is null, not a string`, i)
		}
		r.queries = append(r.queries, *query)
	}
	if len(r.queries) > limits.Batch {
		return nil, fmt.Errorf("%d queries are more than the limit of %d; send them in several requests", len(r.queries),
			limits.Batch)
	}
	for i, query := range r.queries {
		if len(query) > limits.Query {
			return nil, fmt.Errorf("query %d has %d bytes, more than the limit of %d", i, len(query), limits.Query)
		}
	}
	if form.TopK != nil {
		asked := *form.TopK
		if asked < 1 || asked > float64(limits.TopK) || asked != math.Trunc(asked) {
			return nil, fmt.Errorf(`"topk" is %s; want a whole number from 1 to %d`, strconv.FormatFloat(asked, 'g', -1, 64),
				limits.TopK)
		}
		r.topk = int(asked)
	}
	return r, nil
}

// inWords says what is wrong with JSON without the names of Go's types.
func inWords(err error) string {
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrongType) && wrongType.Field == "":
		return fmt.Sprintf("it is a JSON %s", wrongType.Value)
	case errors.As(err, &wrongType):
		return fmt.Sprintf("%q cannot be a JSON %s", wrongType.Field, wrongType.Value)
	case errors.Is(err, io.EOF):
		return "it is empty"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "it breaks off"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}
