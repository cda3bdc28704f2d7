// Package server serves a Searcher over HTTP in the form of Search-R1's retrieval server:
//
//	POST /retrieve {"queries": [...], "topk": 3, "return_scores": true}
//	→ {"result": [[{"document": {"id": ..., "contents": ...}, "score": ...}, ...], ...]}
//
// and without return_scores {"result": [[{"id": ..., "contents": ...}, ...], ...]}. GET /healthz says whether it is ready,
// GET /metrics is for Prometheus.
package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
)

// Options say what is served and how. Zero fields take the values named here.
type Options struct {
	Searcher retrieve.Searcher
	// Kind and Passages describe the index to those who ask.
	Kind     string
	Passages int
	// TopK is the number of passages for a query of a request that does not say it; 3.
	TopK   int
	Limits Limits
	// Timeout bounds the time that a request waits and is searched; 30 s.
	Timeout time.Duration
	// Grace is how long requests under way may take after the server is told to stop; 10 s.
	Grace time.Duration
	// Log receives what happens: a line for each request at debug level, faults above; nil drops it.
	Log *slog.Logger
}

// Server serves a Searcher. Make it with New.
type Server struct {
	options  Options
	metrics  *metrics
	places   chan struct{}
	waiting  atomic.Int64
	stopping atomic.Bool
	handler  http.Handler
}

// New returns a server. It refuses a TopK over the limit.
func New(o Options) (*Server, error) {
	o.Limits = o.Limits.withDefaults()
	if o.TopK <= 0 {
		o.TopK = 3
	}
	if o.TopK > o.Limits.TopK {
		return nil, fmt.Errorf("server: topk is %d by default, more than the limit of %d", o.TopK, o.Limits.TopK)
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Grace <= 0 {
		o.Grace = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{options: o, metrics: newMetrics(o.Kind, o.Passages), places: make(chan struct{}, o.Limits.Concurrent)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /retrieve", s.retrieve)
	mux.HandleFunc("GET /healthz", s.health)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}))
	s.handler = mux
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Serve answers requests until ctx ends; then it takes no more of them, lets those under way come to their end within
// Grace, and returns nil. It closes the listener.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	web := &http.Server{
		Handler: s, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute,
		WriteTimeout: s.options.Timeout + time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(s.options.Log.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("server: %w", err)
	case <-ctx.Done():
	}
	s.stopping.Store(true)
	s.options.Log.Info("stopping", "grace", s.options.Grace.String())
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.Grace)
	defer cancel()
	if err := web.Shutdown(grace); err != nil {
		return errors.Join(fmt.Errorf("server: requests under way did not end within %v: %w", s.options.Grace, err), web.Close())
	}
	return nil
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	status, text := http.StatusOK, "ok"
	if s.stopping.Load() {
		status, text = http.StatusServiceUnavailable, "stopping"
	}
	s.answer(w, status, map[string]any{"status": text, "kind": s.options.Kind, "passages": s.options.Passages})
}

// fault is an answer other than 200.
type fault struct {
	status int
	// reason is a word for the metrics.
	reason string
	err    error
}

func (f *fault) Error() string { return f.err.Error() }

func (s *Server) retrieve(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	status, queries := http.StatusOK, 0
	log := s.options.Log.With("remote", r.RemoteAddr)
	defer func() {
		if panicked := recover(); panicked != nil {
			log.Error("panic", "value", fmt.Sprint(panicked), "stack", string(debug.Stack()))
			status = http.StatusInternalServerError
			s.answer(w, status, detail("a fault of the server; its log has more"))
		}
		taken := time.Since(start)
		s.metrics.done(status, taken)
		log.Debug("request", "status", status, "queries", queries, "seconds", taken.Seconds())
	}()
	answer, queries, err := s.search(w, r)
	var failed *fault
	if errors.As(err, &failed) {
		status = failed.status
		s.metrics.refused.WithLabelValues(failed.reason).Inc()
		log.Warn("refused", "status", status, "reason", failed.reason, "err", failed.err.Error())
		if status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		s.answer(w, status, detail(failed.err.Error()))
		return
	}
	s.answer(w, status, answer)
}

func detail(text string) map[string]any { return map[string]any{"detail": text} }

// search reads a request and returns the answer and the number of queries.
func (s *Server) search(w http.ResponseWriter, r *http.Request) (answer any, queries int, err error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.options.Limits.Body))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, 0, &fault{http.StatusRequestEntityTooLarge, "body",
			fmt.Errorf("the body is larger than the limit of %d bytes; send fewer queries", tooLarge.Limit)}
	case err != nil:
		return nil, 0, &fault{http.StatusBadRequest, "body", fmt.Errorf("the body could not be read: %w", err)}
	}
	asked, err := decodeRequest(body, s.options.TopK, s.options.Limits)
	if err != nil {
		return nil, 0, &fault{http.StatusBadRequest, "request", err}
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.options.Timeout)
	defer cancel()
	if err := s.enter(ctx); err != nil {
		return nil, len(asked.queries), err
	}
	defer s.leave()
	results := s.options.Searcher.Search(ctx, asked.queries, asked.topk)
	if err := s.check(ctx, results, len(asked.queries)); err != nil {
		return nil, len(asked.queries), err
	}
	s.count(results)
	return answerOf(results, asked.scores), len(asked.queries), nil
}

// enter waits for a place among those that search.
func (s *Server) enter(ctx context.Context) error {
	select {
	case s.places <- struct{}{}:
		s.metrics.searching.Inc()
		return nil
	default:
	}
	defer s.waiting.Add(-1)
	if n := s.waiting.Add(1); n > int64(s.options.Limits.Waiting) {
		return &fault{http.StatusServiceUnavailable, "crowded", fmt.Errorf("%d requests wait already; try again", n-1)}
	}
	s.metrics.waiting.Inc()
	defer s.metrics.waiting.Dec()
	select {
	case s.places <- struct{}{}:
		s.metrics.searching.Inc()
		return nil
	case <-ctx.Done():
		return s.late(ctx)
	}
}

func (s *Server) leave() {
	<-s.places
	s.metrics.searching.Dec()
}

// late is the fault of a request whose time is over, or whose client has gone.
func (s *Server) late(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &fault{http.StatusServiceUnavailable, "timeout", fmt.Errorf("not done within %v; try again", s.options.Timeout)}
	}
	return &fault{499, "gone", errors.New("the client has closed the connection")}
}

// check returns what went wrong with a search. An answer is whole or it is none.
func (s *Server) check(ctx context.Context, results []retrieve.Result, queries int) error {
	if len(results) != queries {
		return &fault{http.StatusInternalServerError, "search", fmt.Errorf("%d results for %d queries", len(results), queries)}
	}
	for _, result := range results {
		if result.Err == nil {
			continue
		}
		if ctx.Err() != nil {
			return s.late(ctx)
		}
		return &fault{http.StatusInternalServerError, "search", result.Err}
	}
	return nil
}

func (s *Server) count(results []retrieve.Result) {
	s.metrics.batch.Observe(float64(len(results)))
	s.metrics.queries.Add(float64(len(results)))
	for _, result := range results {
		s.metrics.hits.Add(float64(len(result.Passages)))
		if len(result.Passages) == 0 {
			s.metrics.fruitless.Inc()
		}
	}
}

type document struct {
	ID       string `json:"id"`
	Contents string `json:"contents"`
}

type scored struct {
	Document document `json:"document"`
	Score    float64  `json:"score"`
}

// answerOf puts results into one of the two forms of an answer.
func answerOf(results []retrieve.Result, scores bool) any {
	if scores {
		return form(results, func(p episode.Passage) scored { return scored{document{p.ID, p.Contents}, p.Score} })
	}
	return form(results, func(p episode.Passage) document { return document{p.ID, p.Contents} })
}

func form[T any](results []retrieve.Result, hit func(episode.Passage) T) any {
	lists := make([][]T, len(results))
	for i, result := range results {
		lists[i] = []T{}
		for _, p := range result.Passages {
			lists[i] = append(lists[i], hit(p))
		}
	}
	return map[string]any{"result": lists}
}

func (s *Server) answer(w http.ResponseWriter, status int, value any) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		s.options.Log.Error("an answer could not be encoded", "err", err)
		http.Error(w, `{"detail": "the answer could not be encoded"}`, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(body.Len()))
	w.WriteHeader(status)
	if _, err := w.Write(body.Bytes()); err != nil {
		s.options.Log.Debug("the client has gone", "err", err)
	}
}
