package keep

import (
	"errors"
	"iter"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// failure is what the error of a commit is about. Nothing was applied unless
// the outcome is unknown.
type failure uint8

const (
	// failureContent means that the kernel does not accept a row or chain.
	failureContent failure = iota
	// failureTransient means that the kernel lacked memory, or that
	// something was in use. That can also be permanent.
	failureTransient
	// failureConflict means that the kernel has other rows or chains than
	// were committed, where verification does not look.
	failureConflict
	// failureDamage means that verification found damage.
	failureDamage
	// failureForeign means that another program committed meanwhile.
	failureForeign
	// failurePermission means that this process may not change the table:
	// it lost its privileges, or the table belongs to another program (flag
	// owner).
	failurePermission
	// failureUnknown means that the kernel may have applied the
	// transaction.
	failureUnknown
)

// isOfMessage reports whether the kernel refused a message, or had no memory.
func (f failure) isOfMessage() bool { return f <= failureConflict }

// failureOf returns what the error of a commit is about. If the kernel refused
// several messages, the first decides: the others can be a consequence.
func failureOf(err error) failure {
	var changed *Damage
	var refused *nft.CommitError
	switch {
	case errors.Is(err, nft.ErrUnknownOutcome):
		return failureUnknown
	case errors.Is(err, nft.ErrGeneration):
		return failureForeign
	case errors.As(err, &changed):
		return failureDamage
	case errors.Is(err, unix.EPERM):
		return failurePermission
	case errors.As(err, &refused):
		p := refused.Problems[0]
		if p.Op == "delete ct timeout" && p.Errno == unix.EBUSY {
			return failureConflict // a rule of another program in the table refers to it
		}
		return failureOfErrno(p.Errno)
	}
	return failureTransient // the kernel received nothing
}

// failureOfErrno returns what the refusal of a message is about. ENOMEM is
// transient: the owner is held back at first (fate.after), and the sync fails
// if the error refers to no owner (attempt.next). Before Linux
// 6.2, EBUSY can mean that the kernel still counts deleted references. Linux
// 5.10 also returns it for a row with the key of another one. A rule of another
// program in the table can cause a loop. See nfnetlink.ErrLost for the other
// meanings of ENOBUFS.
func failureOfErrno(errno unix.Errno) failure {
	switch errno {
	case unix.ENOMEM, unix.ENOBUFS, unix.EINTR, unix.EAGAIN, unix.EBUSY:
		return failureTransient
	case unix.ENOENT, unix.EEXIST, unix.ELOOP, unix.EMLINK:
		return failureConflict
	}
	return failureContent
}

// isUntagged reports whether the kernel refused a transaction, and the error
// refers to none of its messages.
func isUntagged(err error) bool {
	var refused *nft.CommitError
	return errors.As(err, &refused) && refused.Problems[0].Object == "" && refused.Problems[0].Tag == 0
}

// isTaken reports whether the kernel may have another row with a key: Linux
// 5.10 returns EBUSY.
func isTaken(err error) bool {
	refused, ok := errors.AsType[*nft.CommitError](err)
	return ok && (failureOf(err) == failureConflict || refused.Problems[0].Errno == unix.EBUSY)
}

// namesMessage reports whether the kernel refused a message, rather than the
// whole transaction.
func namesMessage(err error) bool {
	var refused *nft.CommitError
	return errors.As(err, &refused) && refused.Problems[0].Object != ""
}

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
	theWanted    substitute = iota // the wanted content
	theRemainder                   // the remainder of the last content (see Source.Content)
	theSame                        // the kernel keeps what it has; not used in a rewrite
	theNothing                     // the kernel has nothing of the owner
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
		f.instead = theRemainder
	case f.instead == theWanted && !passes:
		f = fate{refused: true, instead: theRemainder}
	case f.instead == theWanted:
		f = f.fail(kind)
		f.instead = theRemainder
	case !f.refused: // the failure of the wanted content was counted
		f.instead = theSame
	case f.instead == theRemainder && !passes:
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
		f.instead = theRemainder
	case f.instead == theWanted && (f.failures > 0 || kind == failureContent):
		f = fate{refused: true, instead: theRemainder}
	case f.instead == theRemainder && !f.passes(kind):
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

// blame is a problem of the kernel, or of Source.Content, with an owner.
type blame struct {
	owner Owner
	kind  failure
	why   error
}

// blamed returns the owners of the transaction that an error of the kernel
// refers to, with their first problems.
//
// A conflict is transient if it follows a problem of another kind: the chain or
// set that the kernel does not have can be one that the refused message adds.
func (tx *transaction) blamed(err error) (all []blame) {
	refused, ok := errors.AsType[*nft.CommitError](err)
	if !ok {
		return nil
	}
	owners := make(map[uint32]Owner) // without those that were blamed already
	for _, c := range tx.changes {
		owners[c.Owner.Tag()] = c.Owner
	}
	consequence := false
	for _, problem := range refused.Problems {
		kind := failureOfErrno(problem.Errno)
		if consequence && kind == failureConflict {
			kind = failureTransient
		}
		consequence = consequence || kind != failureConflict
		if o := owners[problem.Tag]; o != nil {
			delete(owners, problem.Tag)
			all = append(all, blame{o, kind, errors.New(problem.String())})
		}
	}
	return all
}

// decide decides the fate of an owner after a failure.
func (k *Keeper) decide(b blame, in phase) verdict {
	kept := b.owner.Kept()
	before := kept.fate()
	next, v := before.after(in, b.kind)
	if v == blameless {
		return v
	}
	why := b.why
	if before.instead != theWanted {
		why = errors.New(kept.trouble.why)
	}
	if next.refused && !before.refused {
		k.source.Report(Refusal{b.owner, why})
	}
	kept.trouble = &trouble{next, why.Error(), time.Now().Add(k.limits.FirstRetry << max(0, next.failures-1))}
	k.state.failing[b.owner] = struct{}{}
	if in == phaseUpdate && !next.refused {
		k.holdFormer(b.owner)
	}
	return v
}

// holdFormer holds back the owners from which an owner that is held back takes
// over rows. Otherwise the kernel would have these rows for none of them.
// Owners of other accounts do not wait.
func (k *Keeper) holdFormer(o Owner) {
	k.source.Together(o, func(former Owner, takes bool) {
		next, of := former.Kept().fate(), o.Kept().trouble
		if !takes || next.instead == theSame || former.Account() != o.Account() {
			return
		}
		next.instead = theSame // no failure of its own
		former.Kept().trouble = &trouble{next, of.why, of.after}
		k.state.failing[former] = struct{}{}
		k.holdFormer(former)
	})
}

// planOwners plans the changes of owners. It returns those that cannot be
// written as they are wanted.
func (k *Keeper) planOwners(tx *transaction, owners iter.Seq[Owner]) (unplanned []blame) {
	for o := range owners {
		if err := tx.plan(o); err != nil {
			unplanned = append(unplanned, blame{o, failureContent, err})
		}
	}
	return unplanned
}

// refuseUnplanned refuses owners that cannot be written as they are wanted.
func (k *Keeper) refuseUnplanned(unplanned []blame) {
	for _, b := range unplanned {
		k.decide(b, phaseUpdate)
	}
}

// afterAttempt decides the fates of the owners that the error of an attempt
// refers to, and returns what follows. owners are those of an update of an
// extent.
func (k *Keeper) afterAttempt(tx *transaction, in phase, err error, isolated bool, owners []Owner, of extent) step {
	a := attempt{in: in, kind: failureOf(err), failures: k.failures, of: of}
	if a.kind.isOfMessage() {
		for _, b := range tx.blamed(err) {
			a.blame = max(a.blame, k.decide(b, in))
		}
		a.anonymous = !isolated && namesMessage(err)
		a.untagged = isUntagged(err)
	}
	if a.untagged && of == someOwners && len(k.rings(owners)) == 1 {
		a.of = oneOwner
	}
	isWritten := func(o Owner) bool { return k.link.batch.HasTag(o.Tag()) }
	if (a.of == heavyOwner || a.of == oneOwner) && !slices.ContainsFunc(owners, isWritten) {
		a.of = noOwner
	}
	next := a.next()
	switch {
	case next == stepHoldAll:
		for _, o := range owners {
			k.decide(blame{o, a.kind, err}, in)
		}
	case a.of == partOfTrial || in == phaseRewrite || a.kind != failureTransient || a.blame != blameless:
	case next == stepFail || next == stepRewrite:
		k.failures++
	}
	return next
}

// rings divides owners into those that must be written together.
func (k *Keeper) rings(owners []Owner) (rings [][]Owner) {
	left := make(map[Owner]bool, len(owners))
	for _, o := range owners {
		left[o] = true
	}
	for _, first := range owners {
		if !left[first] {
			continue
		}
		var ring []Owner
		take := func(o Owner) {
			if left[o] {
				ring, left[o] = append(ring, o), false
			}
		}
		take(first)
		for i := 0; i < len(ring); i++ {
			k.source.Together(ring[i], func(other Owner, _ bool) { take(other) })
		}
		rings = append(rings, ring)
	}
	return rings
}
