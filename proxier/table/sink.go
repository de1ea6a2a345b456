package table

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// New returns a Table for each address family. The Tables share the generation
// of the ruleset, so that they do not take each other for other programs.
func New(config Config, families ...nft.Family) ([]*Table, error) {
	if config.Open == nil {
		config.Open = func() (keep.Kernel, error) { return nft.Open() }
	}
	if config.Limits == nil {
		config.Limits = new(keep.DefaultLimits())
	}
	shared := keep.NewGeneration()
	var tables []*Table
	for _, f := range families {
		rules, err := ruleset.New(config.Rules, f)
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		t := &Table{
			config: config, rules: rules, desired: newDesired(f, config.Rules, config.OwnPorts),
			ids: newAffinityIDs(config.Rules.AffinitySeed),
		}
		t.onDemand = slices.Concat(rules.AffinitySets(), rules.SourceSets(func(*nft.Set) bool { return true }))
		t.keeper = keep.New(keep.Config{
			Table: t.table(), Source: source{t}, Generation: shared, Open: config.Open, Limits: config.Limits,
		})
		t.desired.touch = t.keeper.Touch
		tables = append(tables, t)
	}
	return tables, nil
}

// Setup implements cluster.Sink. It connects to nf_tables in the network
// namespace of the calling thread.
func (t *Table) Setup() error {
	if err := t.keeper.Open(); err != nil {
		return err
	}
	if t.config.Rules.RetryAfter > 0 {
		t.timeouts.open()
	}
	if err := t.ids.restore(t.keeper.Kernel(), t.rules, t.table()); err != nil {
		klog.ErrorS(err,
			"Failed to read the session affinity of an earlier process; some clients may get another endpoint",
			"table", t.name())
	}
	return nil
}

// Close closes the connection to the kernel. The table stays.
func (t *Table) Close() error { return errors.Join(t.keeper.Close(), t.timeouts.close()) }

// Timeouts returns the timeouts of connection tracking, zero if the rules need
// none.
func (t *Table) Timeouts() ruleset.Timeouts { return t.timeouts.last }

// SetNode implements cluster.Sink.
func (t *Table) SetNode(n *cluster.Node) {
	if t.desired.setNode(n, t.rules.NodePortAddrs(n)) {
		t.keeper.TouchProgram()
	}
}

// SetService implements cluster.Sink. A Service without the family of the table
// is deleted.
func (t *Table) SetService(svc *cluster.Service) { t.desired.setService(svc) }

// DeleteService implements cluster.Sink.
func (t *Table) DeleteService(name cluster.ServiceName) { t.desired.deleteService(name) }

// SetEndpoints implements cluster.Sink. Endpoints of other families are
// ignored.
func (t *Table) SetEndpoints(name cluster.ServiceName, source string, endpoints []*cluster.Endpoint) {
	t.desired.setEndpoints(name, source, endpoints)
}

// Sync implements cluster.Sink. Its cost depends on the number of changes. If
// the kernel may not have what was committed, Sync writes everything. Otherwise
// changes can wait for their turns (see Next).
func (t *Table) Sync() error {
	t.updateTimeouts()
	t.prepare()
	return t.keeper.Sync()
}

// Resync syncs like Sync, and also tries the service ports again that the
// kernel refused. Check repairs what other programs changed; Resync does not.
func (t *Table) Resync() error {
	t.prepare()
	return t.keeper.Resync()
}

// prepare makes claims and limits follow the changes, and records events about
// them.
func (t *Table) prepare() {
	t.desired.mergeEndpoints()
	t.desired.applyBudgets()
	t.keepOwners()
	report := reporter{&t.desired, t.record}
	report.reduced()
	t.stats.Conflicts += report.conflicts()
	report.invalidEndpoints()
	for s := range t.desired.fresh {
		for _, p := range s.ports {
			t.desired.hold(p)
		}
	}
	t.desired.forgetNamespaces(time.Now())
	t.ids.forgetOld()
	if len(t.desired.fresh) > 0 {
		// A new map: iterating over an emptied one costs as much as before.
		t.desired.fresh = make(map[*serviceState]struct{})
	}
}

// Next returns the time until a Sync is due although nothing else changes:
// changes wait for their turns, or are held back. ok is false if there are
// none.
func (t *Table) Next() (wait time.Duration, ok bool) {
	if len(t.desired.growing) > 0 {
		return 0, true
	}
	return t.keeper.Next()
}

// Check verifies the table if another program committed since the last
// verification, and repairs it if necessary (see keep.Keeper.Check). If sysctls
// changed, it syncs.
func (t *Table) Check() error {
	if t.updateTimeouts() && t.keeper.Program() != nil {
		return t.Sync()
	}
	return t.keeper.Check()
}

// Generation returns the generation of the ruleset that this Table and the
// others of the same New share. Any goroutine can use it.
func (t *Table) Generation() *keep.Generation { return t.keeper.Generation() }

// IsIdle reports whether a Check has nothing to do before another program
// commits, or a sysctl changes.
func (t *Table) IsIdle() bool { return t.keeper.IsIdle() }

// updateTimeouts makes the program follow the sysctls. It reports whether they
// changed.
func (t *Table) updateTimeouts() bool {
	changed := t.timeouts.update(time.Now())
	if changed {
		t.rules.SetTimeouts(t.timeouts.last)
		t.keeper.TouchProgram()
	}
	return changed
}

// Rest returns how long to wait before the next Check. It is 0 unless the last
// one verified the table.
func (t *Table) Rest() time.Duration { return t.keeper.Rest() }

// IsRepairing reports whether a repair of rows is under way, which the next
// Check continues.
func (t *Table) IsRepairing() bool { return t.keeper.IsRepairing() }

// Damaged reports whether the last Check found damage with which new
// connections fail (see keep.Keeper.Damaged).
func (t *Table) Damaged() bool { return t.keeper.Damaged() }

// Scrubbed reports whether Check has compared everything since another program
// last committed.
func (t *Table) Scrubbed() bool { return t.keeper.Scrubbed() }
