package follow

import (
	"context"

	"github.com/nftproxy/nftproxy/proxier/table"
)

// follower follows the commits of one or several tables.
type follower interface {
	// committed is called after each commit, by the goroutine that uses the
	// table. It must not block, and not keep or modify the commit.
	committed(*table.Commit)
	// run works until ctx ends.
	run(ctx context.Context)
	// close closes connections to the kernel, after run has returned.
	close() error
}

// idle is a follower that does nothing. Followers embed it.
type idle struct{}

func (idle) committed(*table.Commit) {}
func (idle) run(context.Context)     {}
func (idle) close() error            { return nil }
