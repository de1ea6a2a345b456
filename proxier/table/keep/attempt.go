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
	// untagged reports whether the kernel refused the transaction, and the
	// error does not show why. of is what an update writes.
	untagged bool
	of       extent
	// failures is the number of updates in a row that failed before, without a
	// owner that could be held back.
	failures int
}

// step is what follows an attempt that failed.
type step uint8

const (
	stepFail    step = iota // the sync fails
	stepAgain               // try again
	stepIsolate             // try again with separate messages for each owner
	stepBisect              // write the owners in halves, to find out which one is refused
	stepHoldAll             // try again without the owners
	stepRepair              // write everything, not too often
	stepRewrite             // write everything
)

// extent is the extent of an update.
type extent uint8

const (
	someOwners  extent = iota // several owners that need not be written together
	oneOwner                  // one, or several that must be written together
	heavyOwner                // the same, above Limits.HeavyCost
	noOwner                   // only the program
	partOfTrial               // some of the owners of an update that failed
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
	case a.of == partOfTrial:
		return stepFail
	case a.untagged && a.of == someOwners:
		return stepBisect
	case a.of == heavyOwner, a.of == oneOwner && a.untagged && a.kind != failureTransient:
		return stepHoldAll
	case a.kind != failureTransient, a.failures+1 == maxFailures:
		return stepRewrite
	}
	return stepFail
}
