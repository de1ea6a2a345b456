package keep

// attempt is an attempt to write an update or everything, which failed.
type attempt struct {
	in   phase
	kind failure
	// blame is what the failure means for the owners that the error
	// refers to: the worst verdict.
	blame verdict
	// anonymous reports whether the error refers to a message, but to no
	// owner, because several of them share the message.
	anonymous bool
	// heavy reports whether a heavy part of an update can be held back.
	heavy bool
	// failures is the number of updates in a row that failed before, without a
	// owner that could be held back.
	failures int
}

// step is what follows an attempt that failed.
type step uint8

const (
	stepFail     step = iota // the sync fails
	stepAgain                // try again
	stepIsolate              // try again with separate messages for each owner
	stepHoldPart             // try again without the owners of the part
	stepRepair               // write everything, not too often
	stepRewrite              // write everything
	stepDoubt                // write everything; until then the table is in doubt
)

// next returns what follows the attempt. If the outcome is unknown, the table
// is in doubt already (see link.commitExpecting).
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
