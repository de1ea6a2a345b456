package proxier

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// Repairs are at once, unless another program keeps changing the table: two
// proxies that want the same table must not take it from each other all the time.
// From the second repair within calmTime on, the next one waits, for longer each
// time.
const (
	calmTime   = 5 * time.Second
	firstPause = 250 * time.Millisecond
	lastPause  = 10 * time.Second
)

// repairs decides when the table may be repaired, and counts repairs.
type repairs struct {
	last    time.Time
	foreign int           // generation.foreign at the last repair
	pause   time.Duration // after the last repair
	count   map[damageKind]int
}

// wait returns how long to wait before the next repair.
func (r *repairs) wait(now time.Time) time.Duration { return max(0, r.pause-now.Sub(r.last)) }

// recent reports whether another program committed after the last repair, which
// was a moment ago.
func (r *repairs) recent(now time.Time, foreign int) bool {
	return !r.last.IsZero() && now.Sub(r.last) < calmTime+r.pause && foreign != r.foreign
}

// add counts a repair that begins now. It reports whether another program changes
// the table again and again.
func (r *repairs) add(kind damageKind, now time.Time, foreign int) (again bool) {
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

// tableName returns the name of the table for the log: ip kube-proxy.
func (b *Backend) tableName() string { return b.layout.family.String() + " " + TableName }

// Check verifies the table if another program committed since the last time, and
// repairs it if necessary. While no other program commits, it costs one small
// request. It also scrubs a few rows after such commits.
func (b *Backend) Check() error {
	if b.inDoubt != "" || b.repairs.wait(time.Now()) > 0 {
		return nil // the next sync writes everything; or a repair has to wait
	}
	now, err := b.kernel.Generation()
	if err != nil {
		return err
	}
	if b.generation.found(now); b.verified != b.generation.foreign {
		if err := b.verify(); err != nil {
			return b.repaired(err)
		}
	}
	return b.repaired(b.scrub())
}

// repaired handles an error that may be a *damage: it repairs the damage by
// writing everything. All other errors are returned.
func (b *Backend) repaired(err error) error {
	var d *damage
	if !errors.As(err, &d) {
		return err
	}
	now := time.Now()
	if wait := b.repairs.wait(now); wait > 0 {
		return fmt.Errorf("%w; the next repair of table %s is in %v", err, b.tableName(), wait.Round(time.Millisecond))
	}
	b.countRepair(d, now)
	b.doubt(d.Error())
	return b.timed(b.rewrite)
}

// countRepair logs and counts a repair that begins now.
func (b *Backend) countRepair(d *damage, now time.Time) {
	again := b.repairs.add(d.kind, now, b.generation.foreign)
	klog.InfoS("Repairing the table", "table", b.tableName(), "kind", d.kind, "reason", d.Error())
	if again {
		klog.InfoS("Another program keeps changing the table; is a second service proxy running on this node?",
			"table", b.tableName(), "nextRepairAfter", b.repairs.pause)
		b.nameOthers()
	}
}

// listenTime is how long nameOthers listens. While it does, every transaction on
// the host is slower.
const listenTime = 5 * time.Second

// nameOthers logs, a moment later, which other processes commit to nf_tables.
func (b *Backend) nameOthers() {
	if b.monitor == nil || !b.listening.CompareAndSwap(false, true) {
		return
	}
	monitor, ours := b.monitor, maps.Clone(b.generation.ours)
	go func() {
		defer b.listening.Store(false)
		others, err := monitor.Listen(listenTime)
		if err != nil {
			klog.ErrorS(err, "Failed to find out which program changes the table")
			return
		}
		for _, p := range others {
			if !ours[p.Port] {
				klog.InfoS("Another process commits to nf_tables", "process", p.Name, "pid", p.PID)
			}
		}
	}()
}

// openMonitor opens the monitor that nameOthers needs. Without one, the log does
// not name other programs.
func (b *Backend) openMonitor() {
	m, err := nft.OpenMonitor()
	if err != nil {
		klog.V(2).InfoS("Programs that change the table cannot be named", "err", err)
		return
	}
	b.monitor = m
}
