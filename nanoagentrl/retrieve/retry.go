package retrieve

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"time"
)

// InBatches cuts n queries into batches of at most MaxBatch, calls work for each, with at most Parallel of them under
// way at once, and returns when all are done.
func (o ClientOptions) InBatches(n int, work func(begin, end int)) {
	o = o.WithDefaults()
	var group sync.WaitGroup
	places := make(chan struct{}, o.Parallel)
	for begin := 0; begin < n; begin += o.MaxBatch {
		places <- struct{}{}
		group.Go(func() {
			work(begin, min(begin+o.MaxBatch, n))
			<-places
		})
	}
	group.Wait()
}

// Retry calls attempt until it succeeds, fails in a way for which again is false, or has failed Retries times more,
// with the waits of the options in between. It returns nil or the last failure, which tells the number of attempts;
// that of a context that ends during a wait is KindCanceled.
func (o ClientOptions) Retry(ctx context.Context, again func(*Error) bool, attempt func() *Error) *Error {
	o = o.WithDefaults()
	for made := 1; ; made++ {
		failure := attempt()
		if failure == nil {
			return nil
		}
		failure.Attempts = made
		if !again(failure) || made > o.Retries {
			return failure
		}
		if err := sleep(ctx, o.wait(made)); err != nil {
			return &Error{Kind: KindCanceled, Attempts: made, Err: err}
		}
	}
}

// wait returns how long to wait after the given number of failed attempts.
func (o ClientOptions) wait(attempts int) time.Duration {
	longest := o.Backoff
	for range attempts - 1 {
		longest = min(2*longest, o.MaxBackoff)
	}
	longest = min(longest, o.MaxBackoff)
	return longest/2 + rand.N(longest/2+1)
}

func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// TransportError tells the caller's end, the end of the time of an attempt and a broken connection apart. ctx is the
// caller's context, not that of the attempt.
func TransportError(ctx context.Context, timeout time.Duration, err error) *Error {
	if ctx.Err() != nil {
		return &Error{Kind: KindCanceled, Err: ctx.Err()}
	}
	var wrapped *url.Error // names the address again, with its password
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var network net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout() {
		return &Error{Kind: KindTimeout, Err: fmt.Errorf("no answer within %v: %w", timeout, err)}
	}
	return &Error{Kind: KindConnection, Err: err}
}
