package keep

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// repaired writes everything if err is a *Damage. It returns all other errors.
func (k *writer) repaired(err error) error {
	d, ok := errors.AsType[*Damage](err)
	if !ok {
		return err
	}
	now := time.Now()
	if wait := k.repairs.wait(now); wait > 0 {
		return fmt.Errorf("%w; the next repair of table %s is in %v", err, k.name(), wait.Round(time.Millisecond))
	}
	k.countRepair(d, now)
	k.Distrust(RewriteDamage, d.Error())
	return k.rewrite()
}

// countRepair logs and counts a repair.
func (k *writer) countRepair(d *Damage, now time.Time) {
	again := k.repairs.add(d.Kind, now, k.seen, k.limits)
	klog.InfoS("Repairing the table", "table", k.name(), "kind", d.Kind, "reason", d.Error())
	if again {
		klog.InfoS("Another program keeps changing the table; is a second service proxy running on this node?",
			"table", k.name(), "nextRepairAfter", k.repairs.pause)
		k.monitor.nameOthers(&k.generation.ports, k.source.Blamed)
	}
}

// maxRowRepairs is the maximum number of rows that are repaired one by one. If
// more of the rows read at a time are wrong, everything is written.
const maxRowRepairs = 32

// repairSome repairs the rows and chains of an owner. The error is a *Damage if
// everything must be written.
func (k *writer) repairSome(found []Difference) error {
	first := &found[0].damage
	tx := newTransaction(k.batch, k.source, k.have)
	for _, d := range found {
		switch d.damage.Kind {
		case DamagedAffinity:
			if !slices.Contains(tx.repaired, d.chain) {
				tx.repaired = append(tx.repaired, d.chain)
			}
		case DamagedRow:
			if d.has.Set != nil {
				tx.removed = append(tx.removed, taggedRow{Row: d.has})
			}
			tx.added = append(tx.added, taggedRow{Row: d.want})
		default:
			return first
		}
	}
	if len(tx.added) > maxRowRepairs {
		return first
	}
	if err := k.Verify(); err != nil { // more than these rows may be wrong
		if other, ok := errors.AsType[*Damage](err); !ok || other.Kind != DamagedRows {
			return err
		}
	}
	k.resetBatch(false)
	tx.writeChains(tx.repaired...)
	if err := tx.writeRows(noFlush); err != nil {
		return err
	}
	return k.commitRepair(first)
}

// commitRepair commits a batch that repairs a part of the table. The error is a
// *Damage, after which the caller writes everything, if the commit fails, or if
// another program committed after a repair of a moment ago.
func (k *writer) commitRepair(d *Damage) error {
	now := time.Now()
	if k.repairs.recent(now, k.seen) {
		return d
	}
	err := k.commitExpecting()
	if errors.Is(err, nft.ErrGeneration) {
		err = k.commitGuarded() // if what verification reads is intact
	}
	var other *Damage
	switch {
	case errors.As(err, &other):
		return other
	case err != nil:
		klog.InfoS("Failed to repair a part of the table; writing all of it", "table", k.name(), "err", err)
		return d
	}
	k.countRepair(d, now)
	k.source.Repaired(d)
	k.verified = -1 // the next Check counts the rows: there may be another one in place of a lost one
	return nil
}
