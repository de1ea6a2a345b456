package answer

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// Diff asks for the differences between the tables and the kernel, after a
// cursor. The answer is the steps of the comparison. A cursor is
// FAMILY:POSITION, where POSITION is a cursor of keep.Diff.
var Diff = socket.Question[string, keep.DiffStep]{
	Path:   "/v1/diff",
	Format: func(after string) url.Values { return url.Values{"after": {after}} },
	Parse:  func(v url.Values) (after string, err error) { return v.Get("after"), nil },
}

// diffRest is how long a comparison rests after each step, as a multiple of the
// duration of the step. So it uses at most a fifth of a core.
const diffRest = 4

// diff answers the question, in short steps between syncs. If a family does not
// answer, the other one is compared before diff returns the error.
func (a *Answers) diff(ctx context.Context, after string, yield func(*keep.DiffStep) error) error {
	families, position, err := a.familiesAfter(after)
	if err != nil {
		return err
	}
	d := comparison{proxy: a.config.Proxy, yield: yield}
	for _, f := range a.config.Proxy.Status().Families {
		for _, n := range f.Rows {
			d.total.AllRows += n
		}
	}
	for i, f := range families {
		if err := d.compare(ctx, f, position, i == len(families)-1); err != nil {
			return err
		}
		position = ""
	}
	return d.failed
}

// familiesAfter returns the families that a comparison after a cursor compares,
// and the position in the first of them.
func (a *Answers) familiesAfter(cursor string) (families []nft.Family, position string, err error) {
	all := a.families()
	if cursor == "" {
		return all, "", nil
	}
	name, position, ok := strings.Cut(cursor, ":")
	i := slices.IndexFunc(all, func(f nft.Family) bool { return f.Name() == name })
	if i < 0 || !ok {
		return nil, "", fmt.Errorf("%q is not a cursor of a comparison", cursor)
	}
	return all[i:], position, nil
}

// comparison is a call of Answers.diff.
type comparison struct {
	proxy  Proxy
	yield  func(*keep.DiffStep) error
	total  keep.DiffStep // the numbers of rows, and the cursor
	failed error         // of the families that could not be compared
}

// compare compares the table of one family. last reports whether no other
// family follows. It returns the error of yield. After another error, the
// cursor stays where the comparison of the family ended.
func (c *comparison) compare(ctx context.Context, f nft.Family, position string, last bool) error {
	if c.failed == nil {
		c.total.Cursor = f.Name() + ":" + position
	}
	diff, err := ask(ctx, c.proxy, f, func(t *table.Table) (*keep.Diff, error) { return t.Diff(position) })
	if err != nil {
		c.failed = errors.Join(c.failed, err)
		return nil
	}
	for done := false; !done; {
		var took time.Duration
		found, err := ask(ctx, c.proxy, f, func(*table.Table) (keep.DiffStep, error) {
			start := time.Now()
			defer func() { took = time.Since(start) }()
			return diff.Next()
		})
		if err != nil {
			c.failed = errors.Join(c.failed, err)
			return nil
		}
		if err := c.yield(c.step(f, &found, last)); err != nil {
			return err
		}
		if done = found.Done; !done {
			rest(ctx, diffRest*took)
		}
	}
	return nil
}

// step returns a step of a table as one of the comparison.
func (c *comparison) step(f nft.Family, found *keep.DiffStep, last bool) *keep.DiffStep {
	c.total.Rows += found.Rows
	if c.failed == nil {
		c.total.Cursor = f.Name() + ":" + found.Cursor
	}
	step := c.total
	step.Differences, step.Done = found.Differences, found.Done && last && c.failed == nil
	return &step
}

// rest waits for a duration, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
