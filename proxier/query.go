package proxier

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errBusy is returned if a query does not get its turn in time.
var errBusy = errors.New("the proxy did not answer in time: it is busy with a sync, or has not started")

// queryPatience is how long a query waits for its turn.
const queryPatience = 10 * time.Second

// query runs a function in the goroutine of SyncLoop, between syncs, and
// returns its result. Changes wait for it, so it must take a few milliseconds
// at most. If it does not get its turn before ctx ends, or within
// queryPatience, the error wraps that of a context.
func query[T any](ctx context.Context, p *Proxier, f func() T) (result T, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryPatience)
	defer cancel()
	results := make(chan T, 1)
	select {
	case p.queries <- func() { results <- f() }:
	case <-ctx.Done():
		return result, fmt.Errorf("%w (%w)", errBusy, ctx.Err())
	}
	select {
	case result = <-results:
		return result, nil
	case <-ctx.Done():
		return result, fmt.Errorf("%w (%w)", errBusy, ctx.Err())
	}
}

// tryQuery is query for a function that can fail.
func tryQuery[T any](ctx context.Context, p *Proxier, f func() (T, error)) (T, error) {
	type outcome struct {
		result T
		err    error
	}
	o, err := query(ctx, p, func() outcome {
		result, err := f()
		return outcome{result, err}
	})
	if err != nil {
		return o.result, err
	}
	return o.result, o.err
}
