package proxier

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// One object that the kernel refuses must not keep the others from being served: its service port is left out,
// its owner is told once, and it is tried again when it changes and with every Resync.

// refuse leaves a service port out.
func (b *Backend) refuse(p *portState, why error) {
	if p.retried == nil && p.service.spec != nil {
		b.stats.Refusals++
		recordEvent(b.config.Events, serviceEvent(p.service.spec, ReasonRefused,
			fmt.Sprintf("Service port %s is left out until it can be served: %v", p.name(), why)))
	}
	p.refused, p.retried = why, why
	b.refused[p] = struct{}{}
}

// retryDirty makes the next plans of service ports that changed serve them, also if they were refused before.
func (b *Backend) retryDirty() {
	for s := range b.dirty {
		for _, p := range s.ports {
			p.refused = nil
		}
	}
}

// refuseTagged leaves out all service ports that an error of the kernel is about, if only is true for them. It says whether there were any. EPERM is
// about none: the table belongs to another program (flags owner), or this one has lost its privileges.
func (b *Backend) refuseTagged(err error, only func(*portState) bool) bool {
	var refused *nft.CommitError
	if !errors.As(err, &refused) {
		return false
	}
	found := false
	for _, problem := range refused.Problems {
		if problem.Errno == unix.EPERM {
			continue
		}
		if p := b.ports[problem.Tag]; p != nil && p.refused == nil && only(p) {
			b.refuse(p, errors.New(problem.String()))
			found = true
		}
	}
	return found
}

// refusedByKernel says whether an error is a complaint of the kernel about what it was sent.
func refusedByKernel(err error) bool {
	var refused *nft.CommitError
	return errors.As(err, &refused)
}

// refuseRetried leaves out again what was tried once more and refused again.
func (b *Backend) refuseRetried(err error) bool {
	return b.refuseTagged(err, func(p *portState) bool { return p.retried != nil })
}

// accept takes note that the kernel took a service port, or that there is none to take any more.
func (b *Backend) accept(p *portState) {
	p.refused, p.retried = nil, nil
	delete(b.refused, p)
}

// Refused returns the names of the service ports that are left out, sorted.
func (b *Backend) Refused() []string {
	var names []string
	for p := range b.refused {
		names = append(names, p.name())
	}
	slices.Sort(names)
	return names
}
