package proxier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// errBusy is returned if a query does not get its turn in time.
var errBusy = errors.New("the proxy did not answer in time: it is busy with a sync, or has not started")

// queryPatience is how long a query waits for its turn.
const queryPatience = 10 * time.Second

// Query runs a function in the loop of an address family, between syncs, and
// returns its error. The function must use the Table only until it returns,
// except for Table.Expected. Changes wait for it, so it must take a few
// milliseconds at most.
//
// If the function does not get its turn before ctx ends, or within 10 s, the
// error wraps the error of a context, and the function may still run later. An
// error names the family. Any goroutine can call Query while SyncLoop runs.
func (p *Proxier) Query(ctx context.Context, f nft.Family, ask func(*table.Table) error) error {
	family := p.families.of(f)
	if family == nil {
		return fmt.Errorf("the proxy does not serve %s", f.Name())
	}
	ctx, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	answer := make(chan error, 1)
	select {
	case family.queries <- func() { answer <- ask(family.table) }:
	case <-ctx.Done(): // nor will there be an answer
	}
	var err error
	select {
	case err = <-answer:
	case <-ctx.Done():
		err = fmt.Errorf("%w (%w)", errBusy, ctx.Err())
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", family.name(), err)
	}
	return err
}
