package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/server"
)

// engine is what is served.
type engine struct {
	retrieve.Searcher
	passages int
	about    string
	// verify reads the whole index; close frees it.
	verify func(context.Context) error
	close  func() error
}

// openEngine opens what is searched.
func openEngine(ctx context.Context, o *encoderOptions, s *source, log io.Writer) (*engine, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	switch o.kind {
	case kindBM25:
	case kindOpenSearch:
		x, err := s.openCluster(ctx)
		if err != nil {
			return nil, err
		}
		return &engine{x, x.Len(), s.name, x.Verify, x.Close}, nil
	default:
		return o.openDenseEngine(ctx, s, log)
	}
	x, err := s.open(ctx, log)
	if err != nil {
		return nil, err
	}
	return &engine{x, x.Index().Len(), describe(x.Index()), x.Index().Verify, x.Close}, nil
}

func serveCommand(flags *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
	s := addSource(flags)
	encoder := addEncoder(flags)
	addFusion(flags, encoder)
	host := flags.String("host", "127.0.0.1", "address to listen on; 0.0.0.0 is all of them")
	port := flags.Int("port", 8000, "port to listen on; 0 takes a free one")
	topk := flags.Int("topk", 3, "passages for a query of a request that does not say it")
	timeout := flags.Duration("timeout", 30*time.Second, "time that a request may wait and be searched")
	grace := flags.Duration("grace", 10*time.Second, "time for requests under way when the server is told to stop")
	limits := server.DefaultLimits()
	flags.IntVar(&limits.TopK, "max_topk", limits.TopK, "most passages for a query")
	flags.IntVar(&limits.Batch, "max_batch", limits.Batch, "most queries of a request")
	flags.IntVar(&limits.Query, "max_query_bytes", limits.Query, "longest query in bytes")
	flags.Int64Var(&limits.Body, "max_body_bytes", limits.Body, "largest request in bytes")
	flags.IntVar(&limits.Concurrent, "max_concurrent", limits.Concurrent, "requests that are searched at once")
	flags.IntVar(&limits.Waiting, "max_waiting", limits.Waiting, "requests that wait for that; more get 503")
	format := flags.String("log_format", "text", "text or json")
	level := flags.String("log_level", "info", "debug (a line for each request), info, warn or error")
	return func(ctx context.Context, args []string, _, errOut io.Writer) (err error) {
		if err := noArguments(args); err != nil {
			return err
		}
		if *port < 0 || *port > 65535 {
			return fmt.Errorf("--port is %d, must be from 0 to 65535", *port)
		}
		for _, name := range []string{"topk", "max_topk", "max_batch", "max_query_bytes", "max_body_bytes", "max_concurrent",
			"max_waiting", "timeout", "grace"} {
			if value := flags.Lookup(name).Value.String(); value == "0" || value == "0s" || strings.HasPrefix(value, "-") {
				return fmt.Errorf("--%s is %s, must be more than 0", name, value)
			}
		}
		log, err := newLog(errOut, *format, *level)
		if err != nil {
			return err
		}
		// The port first: that it is taken should not show only after an hour of indexing.
		listener, err := net.Listen("tcp", net.JoinHostPort(*host, strconv.Itoa(*port)))
		if err != nil {
			return fmt.Errorf("%w; take another --port or --host, or stop what listens there", err)
		}
		defer listener.Close()
		e, err := openEngine(ctx, encoder, s, errOut)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, e.close()) }()
		web, err := server.New(server.Options{Searcher: e, Kind: encoder.kind, Passages: e.passages, TopK: *topk, Limits: limits,
			Timeout: *timeout, Grace: *grace, Log: log})
		if err != nil {
			return err
		}
		log.Info("serving", "address", "http://"+listener.Addr().String()+"/retrieve", "kind", encoder.kind, "index", e.about)
		return serveVerified(ctx, web, listener, e, log)
	}
}

// serveVerified serves while the index is read through, and stops if that shows that it is damaged.
func serveVerified(ctx context.Context, web *server.Server, listener net.Listener, e *engine, log *slog.Logger) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	verified := make(chan struct{})
	go func() {
		defer close(verified)
		switch err := e.verify(ctx); {
		case err == nil:
			log.Info("the whole index was read and is as it was written")
		case ctx.Err() == nil:
			log.Error("the index cannot be used", "err", err)
			stop(err)
		}
	}()
	err := web.Serve(ctx, listener)
	damage := context.Cause(ctx)
	stop(nil)
	<-verified // Before the index is closed.
	if errors.Is(damage, context.Canceled) {
		damage = nil
	}
	return errors.Join(err, damage)
}

func newLog(out io.Writer, format, level string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log_level is %q; want debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: least}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(out, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(out, options)), nil
	}
	return nil, fmt.Errorf("--log_format is %q; want text or json", format)
}
