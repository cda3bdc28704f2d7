package retrieve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// ClientOptions say how patient a Client is. Zero fields take the values of DefaultClient.
type ClientOptions struct {
	// Timeout bounds one attempt, from the connection to the last byte of the answer.
	Timeout time.Duration
	// Retries is the number of further attempts after a failed one; negative means none. Only a status of 500 and
	// above and a broken or refused connection are tried again: a server that did not answer in time is not asked to
	// do the same work twice, and other failures would only repeat themselves.
	Retries int
	// Backoff is the longest wait before the first further attempt; it doubles with each, up to MaxBackoff. The wait
	// is drawn between half of that and all of it, so that many clients do not come back at the same moment.
	Backoff, MaxBackoff time.Duration
	// MaxBatch is the largest number of queries in a request; more are split over several.
	MaxBatch int
	// Parallel is the largest number of requests of one search under way at once.
	Parallel int
	// MaxBytes bounds the size of an answer.
	MaxBytes int64
}

// DefaultClient returns 30 s a try, 3 retries with waits of at most 0.2, 0.4 and 0.8 s, batches of 256, 4 requests at
// once, and answers of at most 64 MiB.
func DefaultClient() ClientOptions {
	return ClientOptions{
		Timeout: 30 * time.Second, Retries: 3, Backoff: 200 * time.Millisecond, MaxBackoff: 5 * time.Second,
		MaxBatch: 256, Parallel: 4, MaxBytes: 64 << 20,
	}
}

// WithDefaults returns the options with the values of DefaultClient in place of zeros.
func (o ClientOptions) WithDefaults() ClientOptions {
	d := DefaultClient()
	set := func(value *time.Duration, fallback time.Duration) {
		if *value <= 0 {
			*value = fallback
		}
	}
	set(&o.Timeout, d.Timeout)
	set(&o.Backoff, d.Backoff)
	set(&o.MaxBackoff, max(d.MaxBackoff, o.Backoff))
	if o.Retries == 0 {
		o.Retries = d.Retries
	}
	if o.MaxBatch <= 0 {
		o.MaxBatch = d.MaxBatch
	}
	if o.Parallel <= 0 {
		o.Parallel = d.Parallel
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = d.MaxBytes
	}
	return o
}

// Client asks a retrieval server that speaks the Search-R1 contract:
//
//	POST /retrieve {"queries": [...], "topk": 3, "return_scores": true}
//	→ {"result": [[{"document": {"id": ..., "contents": ...}, "score": ...}, ...], ...]}
//
// Whatever else comes back, an error page or a wrong number of results, is an *Error for every query of the request,
// and never a passage. A Client is safe for concurrent use and keeps its connections open.
type Client struct {
	endpoint string // with the password, if there is one
	shown    string // without
	options  ClientOptions
	http     *http.Client
}

var _ Searcher = (*Client)(nil)

// NewClient returns a client for a server's address, with or without the path /retrieve. It does not connect; see
// Ping.
func NewClient(address string, options ClientOptions) (*Client, error) {
	parsed, err := url.Parse(address)
	if err != nil || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Host == "" {
		return nil, fmt.Errorf("retrieve: %q is not the address of a server, such as http://127.0.0.1:8000", address)
	}
	parsed.Path = strings.TrimSuffix(strings.TrimRight(parsed.Path, "/"), "/retrieve") + "/retrieve"
	parsed.Fragment = ""
	options = options.WithDefaults()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 4 * options.Parallel
	return &Client{
		endpoint: parsed.String(), shown: parsed.Redacted(), options: options,
		http: &http.Client{
			Transport: transport,
			// A redirected POST comes back as a GET, that is, as something else than was asked for.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Search implements Searcher. Hits of equal score keep the server's order.
func (c *Client) Search(ctx context.Context, queries []string, topk int) []Result {
	results := make([]Result, len(queries))
	if err := checkTopK(topk); err != nil {
		failAll(results, &Error{Kind: KindRequest, URL: c.shown, Err: err})
		return results
	}
	c.options.InBatches(len(queries), func(begin, end int) {
		c.searchBatch(ctx, queries[begin:end], topk, results[begin:end])
	})
	return results
}

// Ping asks the server for one search, with the usual retries, and returns an error that says what to do if it does
// not answer as it should. Call it before a long run.
func (c *Client) Ping(ctx context.Context) error {
	result := c.Search(ctx, []string{"ping"}, 1)[0]
	var failure *Error
	if !errors.As(result.Err, &failure) || failure.Kind == KindCanceled {
		return result.Err
	}
	if failure.Kind == KindConnection || failure.Kind == KindTimeout {
		return fmt.Errorf("no retrieval server answers at %s; start one there that serves POST /retrieve in the "+
			"Search-R1 form, give another address, or search a corpus in process: %w", c.shown, failure)
	}
	return fmt.Errorf("the server at %s does not answer POST /retrieve in the Search-R1 form; check the address and "+
		"the server's own log: %w", c.shown, failure)
}

func (c *Client) searchBatch(ctx context.Context, queries []string, topk int, results []Result) {
	body, err := json.Marshal(map[string]any{"queries": queries, "topk": topk, "return_scores": true})
	if err != nil { // strings and numbers always encode
		failAll(results, &Error{Kind: KindRequest, URL: c.shown, Err: err})
		return
	}
	failure := c.options.Retry(ctx, (*Error).temporary, func() *Error {
		answer, failure := c.post(ctx, body)
		if failure == nil {
			failure = decodeResults(answer, topk, results)
		}
		return failure
	})
	if failure != nil {
		failure.URL = c.shown
		failAll(results, failure)
	}
}

// temporary reports whether another attempt may do better.
func (e *Error) temporary() bool {
	return e.Kind == KindConnection || e.Kind == KindStatus && e.Status >= 500
}

// post makes one attempt and returns the body of an answer with status 200.
func (c *Client) post(ctx context.Context, body []byte) ([]byte, *Error) {
	attempt, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(attempt, http.MethodPost, c.endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, &Error{Kind: KindRequest, Err: err}
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, TransportError(ctx, c.options.Timeout, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, c.options.MaxBytes+1))
	if response.StatusCode != http.StatusOK {
		return nil, &Error{Kind: KindStatus, Status: response.StatusCode,
			Err: fmt.Errorf("the server says: %s", excerpt(answer))}
	}
	if err != nil {
		return nil, TransportError(ctx, c.options.Timeout, err)
	}
	if int64(len(answer)) > c.options.MaxBytes {
		return nil, &Error{Kind: KindTooLarge, Status: response.StatusCode,
			Err: fmt.Errorf("the answer is over the limit of %d bytes", c.options.MaxBytes)}
	}
	return answer, nil
}

// excerpt returns the start of an answer on one line, for an error message.
func excerpt(answer []byte) string {
	const most = 200
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(answer[:min(len(answer), 4*most)]), "\uFFFD")), " ")
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return fmt.Sprintf("%q", text)
}
