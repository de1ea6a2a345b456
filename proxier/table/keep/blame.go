package keep

import (
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/nft"
)

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
func (k *writer) decide(b blame, in phase) verdict {
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
		k.source.Refused(b.owner, why)
	}
	kept.trouble = &trouble{next, why.Error(), time.Now().Add(k.limits.FirstRetry << max(0, next.failures-1))}
	k.failing[b.owner] = struct{}{}
	if next.instead == theSame {
		k.source.Stays(b.owner)
	}
	if in == phaseUpdate && !next.refused {
		k.holdFormer(b.owner)
	}
	return v
}

// holdFormer holds back the owners from which an owner that is held back takes
// over rows. Otherwise the kernel would have these rows for none of them.
// Owners of other accounts do not wait.
func (k *writer) holdFormer(o Owner) {
	k.source.Together(o, func(former Owner, takes bool) {
		next, of := former.Kept().fate(), o.Kept().trouble
		if !takes || next.instead == theSame || former.Account() != o.Account() {
			return
		}
		next.instead = theSame // no failure of its own
		former.Kept().trouble = &trouble{next, of.why, of.after}
		k.failing[former] = struct{}{}
		k.source.Stays(former)
		k.holdFormer(former)
	})
}

// planOwners plans the changes of owners. It returns those that cannot be
// written as they are wanted.
func (k *writer) planOwners(tx *transaction, owners iter.Seq[Owner]) (unplanned []blame) {
	for o := range owners {
		if err := tx.plan(o); err != nil {
			unplanned = append(unplanned, blame{o, failureContent, err})
		}
	}
	return unplanned
}

// refuseUnplanned refuses owners that cannot be written as they are wanted.
func (k *writer) refuseUnplanned(unplanned []blame) {
	for _, b := range unplanned {
		k.decide(b, phaseUpdate)
	}
}

// afterAttempt decides the fates of the owners that the error of an attempt
// refers to, and returns what follows. owners are those of an update of an
// extent.
func (k *writer) afterAttempt(tx *transaction, in phase, err error, isolated bool, owners []Owner, of extent) step {
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
	isWritten := func(o Owner) bool { return k.batch.HasTag(o.Tag()) }
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
