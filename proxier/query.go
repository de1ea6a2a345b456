package proxier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// errBusy is returned if a query does not get its turn in time.
var errBusy = errors.New("the proxy did not answer in time: it is busy with a sync, or has not started")

// queryPatience is how long a query waits for its turn.
const queryPatience = 10 * time.Second

// query runs a function in the loop of an address family, between syncs, and
// returns its result. Changes wait for it, so it must take a few milliseconds
// at most. If it does not get its turn before ctx ends, or within
// queryPatience, the error wraps that of a context. An error names the family.
func query[T any](ctx context.Context, f *family, ask func() (T, error)) (result T, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.proxier.patience)
	defer cancel()
	type outcome struct {
		result T
		err    error
	}
	outcomes := make(chan outcome, 1)
	run := func() {
		result, err := ask()
		outcomes <- outcome{result, err}
	}
	select {
	case f.queries <- run:
	case <-ctx.Done():
		return result, fmt.Errorf("%s: %w (%w)", f.name(), errBusy, ctx.Err())
	}
	select {
	case o := <-outcomes:
		if o.err != nil {
			o.err = fmt.Errorf("%s: %w", f.name(), o.err)
		}
		return o.result, o.err
	case <-ctx.Done():
		return result, fmt.Errorf("%s: %w (%w)", f.name(), errBusy, ctx.Err())
	}
}

// answer is the result of a query of one family.
type answer[T any] struct {
	*family
	result T
}

// queryEach runs a query in the loop of each family, at the same time. It
// returns the answers of the families that answered in time, and the errors of
// the others.
func queryEach[T any](
	ctx context.Context, families []*family, ask func(*family) T,
) (answers []answer[T], err error) {
	results, errs := make([]T, len(families)), make([]error, len(families))
	var asked sync.WaitGroup
	for i, f := range families {
		asked.Go(func() {
			results[i], errs[i] = query(ctx, f, func() (T, error) { return ask(f), nil })
		})
	}
	asked.Wait()
	for i, f := range families {
		if errs[i] == nil {
			answers = append(answers, answer[T]{f, results[i]})
		}
	}
	return answers, errors.Join(errs...)
}
