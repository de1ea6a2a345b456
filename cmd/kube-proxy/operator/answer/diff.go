package answer

import (
	"context"
	"errors"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// Diff asks for the differences between the tables and the kernel. The answer
// is the steps of the comparison.
var Diff = socket.Plain[keep.DiffStep]("/v1/diff")

// diffRest is how long a comparison rests after each step, as a multiple of the
// duration of the step. So it uses at most a fifth of a core.
const diffRest = 4

// diff answers the question, in short steps between syncs. If a family does not
// answer, the other one is compared before diff returns the error.
func (a *Answers) diff(ctx context.Context, _ struct{}, yield func(*keep.DiffStep) error) (failed error) {
	total, families := keep.DiffStep{}, a.config.Proxy.Status().Families
	for _, f := range families {
		for _, n := range f.Rows {
			total.AllRows += n
		}
	}
	for i, f := range families {
		last := i == len(families)-1
		err := a.compare(ctx, f.Family, func(found *keep.DiffStep) error {
			total.Rows += found.Rows
			total.Differences, total.Done = found.Differences, found.Done && last && failed == nil
			step := total
			return yield(&step)
		})
		failed = errors.Join(failed, err)
	}
	return failed
}

// compare compares the table of a family.
func (a *Answers) compare(ctx context.Context, f nft.Family, yield func(*keep.DiffStep) error) error {
	diff, err := ask(ctx, a.config.Proxy, f, func(t *table.Table) (*keep.Diff, error) { return t.Diff() })
	for done := false; err == nil && !done; {
		var took time.Duration
		var found keep.DiffStep
		found, err = ask(ctx, a.config.Proxy, f, func(*table.Table) (keep.DiffStep, error) {
			start := time.Now()
			defer func() { took = time.Since(start) }()
			return diff.Next()
		})
		if err == nil {
			err = yield(&found)
		}
		if done = found.Done; !done && err == nil {
			rest(ctx, diffRest*took)
		}
	}
	return err
}

// rest waits for a duration, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
