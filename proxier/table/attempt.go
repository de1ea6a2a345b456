package table

import (
	"slices"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// attempt is an attempt to write an update or everything, which failed.
type attempt struct {
	in   phase
	kind failure
	// blame is what the failure means for the service ports that the error
	// refers to: the worst verdict.
	blame verdict
	// anonymous reports whether the error refers to a message, but to no
	// service port, because several of them share the message.
	anonymous bool
	// heavy reports whether a heavy part of an update can be held back.
	heavy bool
	// failures is the number of updates in a row that failed before, without a
	// service port that could be held back.
	failures int
}

// step is what follows an attempt that failed.
type step uint8

const (
	stepFail     step = iota // the sync fails
	stepAgain                // try again
	stepIsolate              // try again with separate messages for each service port
	stepHoldPart             // try again without the service ports of the part
	stepRepair               // write everything, not too often
	stepRewrite              // write everything
	stepDoubt                // write everything; until then the table is in doubt
)

// next returns what follows the attempt. If the outcome is unknown, the table
// is in doubt already (see commitExpecting).
func (a attempt) next() step {
	rewrite := a.in == phaseRewrite
	switch {
	case a.kind == failureForeign && rewrite:
		return stepAgain // another program changed what was found, or the table that is being written
	case a.kind == failureForeign, a.kind == failurePermission, a.kind == failureUnknown && rewrite:
		return stepFail
	case a.kind == failureUnknown:
		return stepRewrite
	case a.kind == failureDamage:
		return stepRepair
	case a.blame == syncFails:
		return stepFail
	case a.blame == tryAgain:
		return stepAgain
	case a.anonymous:
		return stepIsolate
	case rewrite && a.kind == failureConflict:
		return stepAgain
	case rewrite:
		return stepFail
	case a.kind != failureTransient:
		return stepDoubt
	case a.heavy:
		return stepHoldPart
	case a.failures+1 == maxFailures:
		return stepRewrite
	}
	return stepFail
}

// afterAttempt decides the fates of the service ports that the error of an
// attempt refers to, and returns what follows.
func (t *Table) afterAttempt(in phase, err error, isolated bool) step {
	a := attempt{in: in, kind: failureOf(err), failures: t.failures}
	if a.kind.isOfMessage() {
		for _, b := range t.blamed(err) {
			a.blame = max(a.blame, t.decide(b, in, cluster.ReasonRefused))
		}
		a.anonymous = !isolated && namesMessage(err)
		a.heavy = in == phaseUpdate && t.part.heavy && slices.ContainsFunc(t.part.ports, func(p *portState) bool {
			return t.refusals[p].instead != theSame
		})
	}
	next := a.next()
	switch {
	case next == stepHoldPart:
		for _, p := range t.part.ports {
			t.decide(blame{p, failureTransient, err}, in, cluster.ReasonRefused)
		}
	case in == phaseUpdate && a.kind == failureTransient && a.blame == blameless && next != stepIsolate:
		t.failures++
	}
	return next
}
