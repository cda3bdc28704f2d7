package server

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// metrics are what /metrics serves, beside those of the Go runtime and the process.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  prometheus.Histogram
	batch    prometheus.Histogram
	queries  prometheus.Counter
	fruitless,
	hits prometheus.Counter
	refused            *prometheus.CounterVec
	searching, waiting prometheus.Gauge
}

func newMetrics(kind string, passages int) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		m.registry.MustRegister(c)
		return c
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		m.registry.MustRegister(c)
		return c
	}
	gauge := func(name, help string, labels prometheus.Labels) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels})
		m.registry.MustRegister(g)
		return g
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
		m.registry.MustRegister(h)
		return h
	}
	m.requests = counters("retriever_requests_total", "Requests to /retrieve by status.", "code")
	m.refused = counters("retriever_refused_total", "Requests that were not searched, by what was in the way.", "reason")
	m.seconds = histogram("retriever_request_seconds", "Time from the first byte of a request to its answer.",
		prometheus.ExponentialBuckets(0.0005, 2, 16))
	m.batch = histogram("retriever_request_queries", "Queries of a request.", prometheus.ExponentialBuckets(1, 4, 8))
	m.queries = counter("retriever_queries_total", "Queries that were searched.")
	m.fruitless = counter("retriever_fruitless_queries_total", "Queries that found nothing.")
	m.hits = counter("retriever_hits_total", "Passages that were returned.")
	m.searching = gauge("retriever_requests_searching", "Requests that are being searched.", nil)
	m.waiting = gauge("retriever_requests_waiting", "Requests that wait for others to end.", nil)
	gauge("retriever_passages", "Passages of the index.", prometheus.Labels{"kind": kind}).Set(float64(passages))
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) done(status int, taken time.Duration) {
	m.requests.WithLabelValues(strconv.Itoa(status)).Inc()
	m.seconds.Observe(taken.Seconds())
}
