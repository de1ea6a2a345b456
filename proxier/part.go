package proxier

import (
	"context"

	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// part is a part of a Proxier that works beside the loops of the families.
type part interface {
	// update is called after each commit of a family that the part follows, by
	// the loop of the family.
	update(*table.Commit)
	// run works until ctx ends.
	run(ctx context.Context)
	// drain stops accepting connections, and waits until the present ones have
	// ended, or ctx ends. It can be called while run runs.
	drain(ctx context.Context)
	// close closes connections to the kernel, after run has returned.
	close() error
}

// idle is a part that does nothing. Parts embed it.
type idle struct{}

func (idle) update(*table.Commit)  {}
func (idle) run(context.Context)   {}
func (idle) drain(context.Context) {}
func (idle) close() error          { return nil }

// Committed implements table.Observer: the parts that follow a family get its
// commits.
func (all *families) Committed(c *table.Commit) {
	for _, part := range all.of(c.Family).parts {
		part.update(c)
	}
}

// Synced implements table.Observer.
func (all *families) Synced(r keep.SyncResult) { all.of(r.Family).ended(r) }
