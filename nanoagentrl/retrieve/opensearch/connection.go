package opensearch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/opensearch-project/opensearch-go/v4"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
)

// request is a request of the official client.
type request = opensearch.Request

// connection is one index of one cluster.
type connection struct {
	client   *opensearch.Client
	index    string
	shown    string // the address without a password
	patience retrieve.ClientOptions
	stop     context.CancelFunc
}

var indexName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,199}$`)

// connect prepares the client; nothing is sent yet. The official client makes no further attempts of its own: ours tell
// their number and keep to the caller's context.
func connect(addresses, index string, patience retrieve.ClientOptions) (*connection, error) {
	var list, shown []string
	for address := range strings.SplitSeq(addresses, ",") {
		parsed, err := url.Parse(strings.TrimSpace(address))
		if err != nil || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Host == "" {
			return nil, fmt.Errorf("opensearch: %q is not the address of a node, such as http://127.0.0.1:9200", address)
		}
		list, shown = append(list, parsed.String()), append(shown, parsed.Redacted())
	}
	if !indexName.MatchString(index) {
		return nil, fmt.Errorf("opensearch: %q is not the name of an index; want small letters, digits, '-', '_' and '.', "+
			"beginning with a letter or a digit", index)
	}
	patience = patience.WithDefaults()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 4 * patience.Parallel
	ctx, stop := context.WithCancel(context.Background())
	never := false
	client, err := opensearch.NewClient(opensearch.Config{
		Addresses: list, DisableRetry: true, HealthCheckMaxRetries: -1, DiscoverNodesOnStart: &never, Context: ctx,
		Transport: &limited{transport, patience.MaxBytes},
	})
	if err != nil {
		stop()
		return nil, fmt.Errorf("opensearch: %s: %w", strings.Join(shown, ","), err)
	}
	return &connection{client, index, strings.Join(shown, ","), patience, stop}, nil
}

// Close ends the connections.
func (c *connection) Close() error {
	c.stop()
	return c.client.Close()
}

// errTooLarge is the error of reading an answer beyond the limit.
var errTooLarge = errors.New("the answer is too large")

// limited is a transport that reads no more than some bytes of an answer.
type limited struct {
	http.RoundTripper
	most int64
}

func (l *limited) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = &limitedBody{response.Body, l.most}
	}
	return response, err
}

type limitedBody struct {
	io.ReadCloser
	left int64
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// call makes one attempt at a request and decodes the answer of status 200 or 201. Another status, no answer in time
// and a broken connection are failures; a nil answer is not decoded.
func call[T any](ctx context.Context, c *connection, method string, r request, answer *T) *retrieve.Error {
	attempt, cancel := context.WithTimeout(ctx, c.patience.Timeout)
	defer cancel()
	response, err := opensearch.Do(attempt, c.client, method, r, answer)
	switch {
	case errors.Is(err, errTooLarge):
		return c.named(&retrieve.Error{Kind: retrieve.KindTooLarge,
			Err: fmt.Errorf("the answer is over the limit of %d bytes; ask for less at once", c.patience.MaxBytes)})
	case response == nil || errors.Is(err, opensearch.ErrReadBody):
		return c.named(retrieve.TransportError(ctx, c.patience.Timeout, err))
	case response.IsError():
		text, _ := io.ReadAll(response.Body) // it lies in memory
		return c.named(&retrieve.Error{Kind: retrieve.KindStatus, Status: response.StatusCode,
			Err: fmt.Errorf("the server says: %s", excerpt(string(text)))})
	case err != nil:
		return c.named(&retrieve.Error{Kind: retrieve.KindDecode, Status: response.StatusCode,
			Err: fmt.Errorf("not an answer of OpenSearch: %s", excerpt(err.Error()))})
	}
	return nil
}

// retried makes a request with further attempts where they may help; build makes it anew for each.
func retried[T any](ctx context.Context, c *connection, method string, build func() request, answer *T) error {
	failure := c.patience.Retry(ctx, temporary, func() *retrieve.Error { return call(ctx, c, method, build(), answer) })
	if failure != nil {
		return c.named(failure)
	}
	return nil
}

// temporary reports whether another attempt may do better: the connection broke, the server is too busy, or it failed.
func temporary(e *retrieve.Error) bool {
	return e.Kind == retrieve.KindConnection || e.Status == http.StatusTooManyRequests || e.Status >= 500
}

// named puts the address of the cluster into a failure.
func (c *connection) named(e *retrieve.Error) *retrieve.Error {
	e.URL = c.shown + "/" + c.index
	return e
}

// excerpt returns the start of an answer on one line, for an error message.
func excerpt(text string) string {
	const most = 300
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text[:min(len(text), 4*most)], "\uFFFD")), " ")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
