package keep

// fate is what failures decided about an owner. The zero fate is that of
// an owner without failures.
//
// An owner is held back first, and the next sync tries it again. If it
// fails again in a rewrite of the table, or if the kernel does not accept its
// content, it is refused: it is tried again when it changes, and with every
// Resync. What is written instead can fail, too.
type fate struct {
	// refused reports whether the owner is refused, rather than held
	// back until the next sync.
	refused bool
	instead substitute
	// failures is the number of syncs in a row that failed because of the
	// owner, at most maxFailures.
	failures int
	// conflict reports whether a rewrite may remove the reason at once.
	conflict bool
}

// substitute is what is written instead of wanted content.
type substitute uint8

const (
	theWanted  substitute = iota // the wanted content
	theLast                      // what is left of the last content (Source.Content with less)
	theSame                      // the kernel keeps what it has; not used in a rewrite
	theNothing                   // the kernel has nothing of the owner
)

// maxFailures is the number of failures of a change after which everything is
// written, once. A failure after that is permanent.
const maxFailures = 3

// phase is the kind of transaction that failed.
type phase uint8

const (
	phaseUpdate phase = iota
	phaseRewrite
)

// verdict is what the failure of an owner means for the attempt.
type verdict uint8

const (
	// blameless means that the attempt wrote nothing of the owner, so
	// that the next attempt would be the same.
	blameless verdict = iota
	// tryAgain means that the next attempt writes less of the owner, or
	// can succeed.
	tryAgain
	// syncFails means that the sync must fail, and the next one tries again.
	syncFails
)

// after returns the fate of an owner after the kernel refused what an
// attempt wrote of it, and what this means for the attempt. The failure is of
// content, transient or a conflict.
func (f fate) after(in phase, kind failure) (fate, verdict) {
	if in == phaseRewrite {
		return f.afterRewrite(kind)
	}
	switch passes := f.passes(kind); {
	case f.instead == theSame:
		return f, blameless
	case f.instead == theWanted && f.refused:
		f.instead = theLast
	case f.instead == theWanted && !passes:
		f = fate{refused: true, instead: theLast}
	case f.instead == theWanted:
		f = f.fail(kind)
		f.instead = theLast
	case !f.refused: // the failure of the wanted content was counted
		f.instead = theSame
	case f.instead == theLast && !passes:
		f.instead = theNothing
	default:
		f = f.fail(kind)
		f.instead = theSame
	}
	return f, tryAgain
}

// afterRewrite is after for a rewrite. Everything waits for it, so the second
// failure of wanted content refuses the owner.
func (f fate) afterRewrite(kind failure) (fate, verdict) {
	switch {
	case f.instead == theSame || f.instead == theNothing:
		return f, blameless
	case f.instead == theWanted && f.refused:
		f.instead = theLast
	case f.instead == theWanted && (f.failures > 0 || kind == failureContent):
		f = fate{refused: true, instead: theLast}
	case f.instead == theLast && !f.passes(kind):
		f.instead = theNothing
	default:
		f = f.fail(kind)
		if kind == failureTransient {
			return f, syncFails
		}
	}
	return f, tryAgain
}

// passes reports whether a failure can pass. One that did not pass so often is
// treated like one of content, so that it does not stop the table for ever.
func (f fate) passes(kind failure) bool { return kind != failureContent && f.failures < maxFailures }

// fail counts a failure.
func (f fate) fail(kind failure) fate {
	f.failures = min(f.failures+1, maxFailures)
	f.conflict = kind == failureConflict
	return f
}

// waits reports whether the owner waits for another sync: it is not
// refused, or the kernel may have more of it than it should have.
func (f fate) waits() bool { return !f.refused || f.instead == theSame }

// committed returns the fate after the commit of what it says.
func (f fate) committed() fate {
	if f.instead == theWanted {
		return fate{}
	}
	if !f.waits() {
		f.failures, f.conflict = 0, false
	}
	return f
}
