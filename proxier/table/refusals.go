package table

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// refusals are the service ports whose wanted plans the kernel refused, or
// cannot be written at all. All others are written without them.
//
// A service port is held back first, and the next sync tries it again. If it
// fails again in a rewrite of the table, or if the kernel does not accept its
// content, it is refused: it is tried again when it changes, and with every
// Resync.
type refusals map[*portState]refusal

// refusal is why a service port cannot be written as it is wanted.
type refusal struct {
	why string
	// refused reports whether the service port is refused, rather than held
	// back until the next sync.
	refused bool
	// conflict reports whether a rewrite may remove the reason at once.
	conflict bool
	failures int // number of syncs that held it back
	instead  substitute
}

// substitute is what is written instead of a wanted plan.
type substitute uint8

const (
	theWanted  substitute = iota // the wanted plan is tried again
	theLast                      // ruleset.LastGood
	theSame                      // the kernel keeps what it has; of no use in a rewrite
	theNothing                   // the kernel has nothing of the service port
)

// maxFailures is the number of failures of a change after which everything is
// written, once.
const maxFailures = 3

// retry makes the next plans of service ports the wanted ones: of those that
// are held back, and of those whose Services changed.
func (r refusals) retry(d *desired) {
	for p, refused := range r {
		if !refused.refused {
			d.markDirty(p.service)
		}
		if _, ok := d.dirty[p.service]; ok {
			refused.instead = theWanted
			r[p] = refused
		}
	}
}

// forgetSame makes a rewrite write what is left of the last plans: a frontend
// can belong to another service port now.
func (r refusals) forgetSame() {
	for p, refused := range r {
		if refused.instead == theSame {
			refused.instead = theLast
			r[p] = refused
		}
	}
}

// plan returns the plan of a service port that replaces before. It is the
// wanted plan unless this was refused.
func (r refusals) plan(p *portState, before, wanted *ruleset.Plan) *ruleset.Plan {
	switch refused := r[p]; {
	case refused.instead == theWanted:
		return wanted
	case refused.instead == theSame:
		return before
	case refused.instead == theNothing, before == nil && !refused.refused:
		return nil
	}
	return ruleset.LastGood(before, wanted)
}

// refuseUnplanned refuses the service ports whose wanted plans cannot be
// written.
func (t *Table) refuseUnplanned(tx *transaction) {
	for _, c := range tx.changes {
		if c.err != nil {
			t.refuse(c.port, cluster.ReasonNotServed, c.err)
		}
	}
}

// refuse refuses the wanted plan of a service port. It records an event unless
// it was refused before.
func (t *Table) refuse(p *portState, reason string, why error) {
	r := t.refusals[p]
	if !r.refused && p.service.spec != nil {
		t.stats.Refusals++
		const format = "Service port %s cannot be updated; it keeps its last rules, or rejects connections: %v"
		note := fmt.Sprintf(format, p.name(), why)
		t.record(cluster.NewEvent(p.service.spec, reason, note))
	}
	t.refusals[p] = refusal{why: why.Error(), refused: true, instead: max(r.instead, theLast)}
}

// holdBack holds back the service ports that an error of an update refers to,
// and refuses those whose content the kernel does not accept. It reports
// whether the next attempt differs.
func (t *Table) holdBack(err error) bool {
	return t.eachRefused(err, func(p *portState, problem nft.Problem) bool {
		return t.hold(p, failureOfErrno(problem.Errno), errors.New(problem.String()))
	})
}

// holdPart holds back the service ports of a heavy part after an error that
// refers to none of them, so that other parts are written. It reports whether
// the next attempt differs.
func (t *Table) holdPart(err error) (any bool) {
	if !t.part.heavy {
		return false
	}
	for _, p := range t.part.ports {
		any = t.hold(p, failureTransient, err) || any
	}
	return any
}

// hold makes the next attempt of an update write less of a service port: it
// holds it back, or refuses it after too many failures. It reports whether the
// next attempt differs.
func (t *Table) hold(p *portState, kind failure, why error) bool {
	r := t.refusals[p]
	switch {
	case r.instead >= theSame:
		return false
	case r.refused:
	case kind == failureContent, r.instead == theWanted && r.failures == maxFailures:
		t.refuse(p, cluster.ReasonRefused, why)
		return true
	case r.instead == theWanted:
		r.failures++
		r.why, r.conflict = why.Error(), kind == failureConflict
	}
	r.instead++
	t.refusals[p] = r
	return true
}

// refuseAgain refuses the service ports that an error of a rewrite refers to,
// if they failed before or the kernel does not accept their content. The others
// are tried again. It reports whether the next attempt may succeed, and whether
// it must wait, because the kernel may lack memory.
func (t *Table) refuseAgain(err error) (again, wait bool) {
	again = t.eachRefused(err, func(p *portState, problem nft.Problem) bool {
		r, failed := t.refusals[p]
		kind := failureOfErrno(problem.Errno)
		switch {
		case r.instead == theNothing:
			return false
		case r.refused && r.instead != theWanted:
			r.instead = theNothing
			t.refusals[p] = r
		case failed, kind == failureContent:
			t.refuse(p, cluster.ReasonRefused, errors.New(problem.String()))
		default:
			t.refusals[p] = refusal{why: problem.String(), failures: 1}
			wait = wait || kind == failureTransient
		}
		return true
	})
	return again, wait
}

// finishHeld is called after an update that held back service ports. It writes
// everything if that may help. Otherwise the error requests another sync.
// Deferred service ports wait for their turns.
func (t *Table) finishHeld() error {
	var held []*portState
	now, rewrite, conflict := time.Now(), false, false
	for p, r := range t.refusals {
		if !r.refused && !p.pending {
			held = append(held, p)
			conflict = conflict || r.conflict
			rewrite = rewrite || r.conflict || r.failures == maxFailures
		}
	}
	if len(held) == 0 {
		return nil
	}
	for _, p := range held {
		t.desired.markDirty(p.service)
	}
	first := slices.MinFunc(held, comparePorts)
	why := t.refusals[first].why
	err := fmt.Errorf("%d service ports wait for another sync, first %s: %s", len(held), first.name(), why)
	if !rewrite || conflict && t.observed.repairs.wait(now) > 0 {
		return err
	}
	if conflict {
		t.countRepair(&damage{damagedRow, why}, now)
	}
	return t.rewriteAfter(err)
}

// rewriteAfter writes everything after an update failed. If that fails, too,
// the next sync is an update again.
func (t *Table) rewriteAfter(err error) error {
	klog.InfoS("Update failed; writing the whole table", "table", t.name(), "err", err)
	t.rewriteCause = rewriteFailure
	return t.rewrite()
}

// failure is what the error of a commit is about. Nothing was applied unless
// the outcome is unknown.
type failure uint8

const (
	// failureContent means that the kernel does not accept a row or chain.
	failureContent failure = iota
	// failureTransient means that the kernel lacked memory, or that something
	// was in use. That can also be permanent.
	failureTransient
	// failureConflict means that the kernel has other rows or chains than were
	// committed, where verification does not look.
	failureConflict
	// failureDamage means that verification found damage.
	failureDamage
	// failureForeign means that another program committed meanwhile.
	failureForeign
	// failurePermission means that this process may not change the table: it
	// lost its privileges, or the table belongs to another program (flag
	// owner).
	failurePermission
	// failureUnknown means that the kernel may have applied the transaction.
	failureUnknown
)

// failureOf returns what the error of a commit is about. If the kernel refused
// several messages, the first decides: the others can be a consequence.
func failureOf(err error) failure {
	var changed *damage
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
		return failureOfErrno(refused.Problems[0].Errno)
	}
	return failureTransient // the kernel received nothing
}

// failureOfErrno returns what the refusal of a message is about. Before Linux
// 6.2, EBUSY can mean that the kernel still counts deleted references. Linux
// 5.10 also returns it for a row with the key of another one. A rule of another
// program in the table can cause a loop.
func failureOfErrno(errno unix.Errno) failure {
	switch errno {
	case unix.ENOMEM, unix.ENOBUFS, unix.EINTR, unix.EAGAIN, unix.EBUSY:
		return failureTransient
	case unix.ENOENT, unix.EEXIST, unix.ELOOP, unix.EMLINK:
		return failureConflict
	}
	return failureContent
}

// eachRefused calls f for each service port that an error of the kernel refers
// to, with the first problem. It reports whether f returned true for any.
func (t *Table) eachRefused(err error, f func(*portState, nft.Problem) bool) (any bool) {
	refused, ok := errors.AsType[*nft.CommitError](err)
	if !ok {
		return false
	}
	done := make(map[*portState]bool)
	for _, problem := range refused.Problems {
		p := t.desired.ports[problem.Tag]
		if p == nil || done[p] {
			continue
		}
		done[p] = true
		any = f(p, problem) || any
	}
	return any
}

// namesMessage reports whether the kernel refused a message, rather than the
// whole transaction.
func namesMessage(err error) bool {
	var refused *nft.CommitError
	return errors.As(err, &refused) && refused.Problems[0].Object != ""
}
