package table

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
)

// damage is a change to our table by another program. It is an error.
type damage struct {
	kind DamageKind
	what string // a sentence without a period: "set service-ips was deleted"
}

// DamageKind is the kind of object that another program changed. It is a label
// of metrics.
type DamageKind string

// The kinds of damage.
const (
	damagedTable    DamageKind = "table"    // deleted or replaced
	damagedSet      DamageKind = "set"      // deleted or replaced
	damagedCounter  DamageKind = "counter"  // deleted or replaced
	damagedChain    DamageKind = "chain"    // base chain deleted, replaced or changed
	damagedRule     DamageKind = "rule"     // rules added, deleted or replaced
	damagedRows     DamageKind = "rows"     // set flushed, or rows added or deleted
	damagedRow      DamageKind = "row"      // single rows deleted or changed, found by the scrubber
	damagedAffinity DamageKind = "affinity" // chain of a service port with session affinity changed
)

// DamageKinds returns all kinds of damage.
func DamageKinds() []DamageKind {
	return []DamageKind{
		damagedTable, damagedSet, damagedCounter, damagedChain, damagedRule, damagedRows, damagedRow, damagedAffinity,
	}
}

// Error describes what another program changed.
func (d *damage) Error() string { return "another program changed the table: " + d.what }

// A repair begins at once, unless another program keeps changing the table: two
// proxies must not fight for the same table without pause. From the second
// repair within calmTime on, the next repair waits, each time longer.
const (
	calmTime   = 5 * time.Second
	firstPause = 250 * time.Millisecond
	lastPause  = 10 * time.Second
)

// repairs determines when the table may be repaired, and counts repairs.
type repairs struct {
	last    time.Time
	foreign int           // observed.seen at the last repair
	pause   time.Duration // after the last repair
	count   map[DamageKind]int
}

// wait returns how long to wait before the next repair.
func (r *repairs) wait(now time.Time) time.Duration { return max(0, r.pause-now.Sub(r.last)) }

// recent reports whether the last repair was a moment ago, and another program
// committed after it.
func (r *repairs) recent(now time.Time, foreign int) bool {
	return !r.last.IsZero() && now.Sub(r.last) < calmTime+r.pause && foreign != r.foreign
}

// add counts a repair that begins now. It reports whether another program
// changes the table repeatedly.
func (r *repairs) add(kind DamageKind, now time.Time, foreign int) (again bool) {
	again = r.recent(now, foreign)
	if again {
		r.pause = min(max(2*r.pause, firstPause), lastPause)
	} else {
		r.pause = 0
	}
	r.last, r.foreign = now, foreign
	r.count[kind]++
	return again
}

// Check verifies the table if another program committed since the last
// verification, and repairs it if necessary. While no other program commits, it
// costs one small request. After such commits, it also scrubs a few rows.
func (t *Table) Check() error {
	if t.inDoubt != "" || t.observed.repairs.wait(time.Now()) > 0 {
		return nil // the next sync writes everything, or a repair has to wait
	}
	err := t.observed.read(t.kernel.Generation)
	if err != nil {
		return err
	}
	if !t.observed.isVerified() {
		err = t.verify()
	}
	if err == nil {
		err = t.scrub()
	}
	var d *damage
	if !errors.As(err, &d) {
		return err
	}
	t.refusals.retry(&t.desired) // the repair writes the changes too
	return t.timed(d.Error(), func() error { return t.repaired(err) })
}

// repaired writes everything if err is a *damage. It returns all other errors.
func (t *Table) repaired(err error) error {
	var d *damage
	if !errors.As(err, &d) {
		return err
	}
	now := time.Now()
	if wait := t.observed.repairs.wait(now); wait > 0 {
		return fmt.Errorf("%w; the next repair of table %s is in %v", err, t.name(), wait.Round(time.Millisecond))
	}
	t.countRepair(d, now)
	t.doubt(rewriteDamage, d.Error())
	return t.rewrite()
}

// countRepair logs and counts a repair.
func (t *Table) countRepair(d *damage, now time.Time) {
	o := &t.observed
	again := o.repairs.add(d.kind, now, o.seen)
	klog.InfoS("Repairing the table", "table", t.name(), "kind", d.kind, "reason", d.Error())
	if again {
		klog.InfoS("Another program keeps changing the table; is a second service proxy running on this node?",
			"table", t.name(), "nextRepairAfter", o.repairs.pause)
		o.monitor.nameOthers(o.generation.allPorts())
	}
}
