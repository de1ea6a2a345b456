package table_test

import (
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

var (
	histories    = flag.Uint64("histories", 8, "number of histories of TestRandomFaults and TestRandomTurns")
	firstHistory = flag.Uint64("first-history", 0, "seed of the first of them")
)

// rounds returns the number of rounds of a random test: n, or fewer with
// -short, which tests on emulated machines use.
func rounds(n int) int {
	if testing.Short() {
		return (n + 4) / 5
	}
	return n
}

// eachHistory runs a test with random histories.
func eachHistory(t *testing.T, test func(*history)) {
	t.Parallel()
	for seed := *firstHistory; seed < *firstHistory+uint64(rounds(int(*histories))); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			tabletest.NewNamespace(t)
			test(newHistory(t, seed))
		})
	}
}

// After random changes and faults, no packet reaches an endpoint that is gone,
// and no client that is not allowed reaches any, whenever a sync succeeded. The
// first sync without a fault makes the table in the kernel equal to the wanted
// table, and refuses nothing.
func TestRandomFaults(t *testing.T) {
	eachHistory(t, func(h *history) {
		for range 1 + h.IntN(3) {
			h.faulty()
			h.end()
			h.checkPackets()
			h.check(*histories < 100 || h.seed%8 == 0)
		}
	})
}

// history is a random history of a table.
type history struct {
	tabletest.Random
	*engine
	t    *testing.T
	seed uint64
	// calm is the number of commits of which one has a fault; 0 for no faults.
	calm int
	// refused are service ports whose wanted plans the kernel refuses.
	refused map[uint32]unix.Errno
	foreign bool // another program changed the table
	synced  int  // number of changes at the last sync that succeeded
	// had are the frontends that service ports ever had.
	had map[ruleset.Frontend]bool
}

// newHistory starts a process. NodePorts are on all addresses, or on the
// addresses in cluster.Node.NodePortIPs. The connections of some Services are
// counted, and some service ports have numbers. Most updates have several
// parts.
func newHistory(t *testing.T, seed uint64) *history {
	h := &history{
		Random: tabletest.NewRandom(seed, 2, []nft.Family{nft.IPv4, nft.IPv6}[seed%2]), engine: newEngine(t), t: t,
		seed: seed, had: make(map[ruleset.Frontend]bool),
	}
	h.families, h.hasCounts = []nft.Family{h.Family}, seed%5 >= 2
	rules := &h.config.Rules
	rules.ServiceMetrics, rules.NumberLimit = ruleset.ServiceMetricsAnnotated, 3
	if seed%3 == 0 {
		rules.NodePortAddresses.CIDRs = tabletest.Prefixes("10.0.0.0/8", "fd00::/8")
	}
	h.limits.PartCost, h.limits.HeavyCost, h.limits.Burst = 20, 20, time.Hour
	if seed%4 == 0 {
		h.limits.ColdBytes = 4000
	}
	if seed%4 != 1 {
		h.limits.StageRows = 3 + int(seed%7)
	}
	h.restart()
	return h
}

func (h *history) table() *table.Table { return h.tables[0] }

// restart starts a process with the objects.
func (h *history) restart() {
	h.t.Helper()
	must.NoError(h.t, h.start())
	h.kernels[0].OnCommit = h.commit
	h.refused = make(map[uint32]unix.Errno) // the old one has the tags of the other process
	h.Replay(h.table())
}

// faulty changes the table and syncs it, with faults.
func (h *history) faulty() {
	h.calm = 1 + h.IntN(5)
	for range 12 {
		switch {
		case h.IntN(12) == 0:
			h.restart()
		case h.IntN(4) == 0:
			h.Revert(h.table(), 1+h.IntN(3))
		case h.IntN(3) == 0:
			h.Revert(h.table(), h.Changes()-h.synced)
		}
		for range h.IntN(4) {
			h.Change(h.table())
		}
		if h.IntN(6) == 0 {
			h.refuseOne()
		}
		if h.IntN(3) == 0 {
			h.ejectSome()
		}
		h.sync()
	}
}

// remember records the frontends that the next sync can write.
func (h *history) remember() {
	for _, p := range h.allPorts(false) {
		for _, f := range p.Frontends {
			h.had[ruleset.Frontend{Addr: f.Address, Port: f.Port, Proto: p.Protocol}] = true
		}
	}
}

// oneSync makes a sync, or a Resync.
func (h *history) oneSync() error {
	h.remember()
	if h.IntN(8) == 0 {
		return h.table().Resync()
	}
	return h.table().Sync()
}

// allStages makes syncs until no owner waits for its next stage.
func (h *history) allStages() error {
	for {
		if err := h.oneSync(); err != nil {
			return err
		}
		if wait, ok := h.table().Next(); !ok || wait > 0 || !h.table().UpToDate() {
			return nil
		}
	}
}

// sync syncs the table. If this succeeds, packets must meet what is allowed.
func (h *history) sync() {
	err := h.allStages()
	for err == nil && h.foreign { // a sync without a change does not verify the table
		h.foreign = false
		err = h.table().Check()
		h.foreign = h.foreign || err != nil
	}
	switch {
	case err != nil || !h.table().UpToDate(): // a service port is held back
	case len(h.allPorts(true)) > 0:
		h.t.Fatal("a sync succeeded, and Services are pending, or the table is in doubt")
	default:
		h.synced = h.Changes()
		h.checkPackets()
	}
}

// end ends all faults. Then one Resync writes what is wanted.
func (h *history) end() {
	h.t.Helper()
	h.calm, h.limits.Burst = 0, time.Hour
	h.remember()
	must.NoError(h.t, errors.Join(h.table().Resync(), h.allStages(), h.table().Check()))
}

// check checks that nothing is refused or waits, and that the table in the
// kernel is the wanted one. nft, which lists it, is slow.
func (h *history) check(list bool) {
	h.t.Helper()
	if s := h.table().Stats(); len(s.RefusedPorts)+len(h.allPorts(true)) > 0 || !h.table().UpToDate() {
		h.t.Fatalf("service ports are refused: %v, or pending: %v", s.RefusedPorts, h.allPorts(true))
	}
	if text, err := h.differences(); err != nil || text != "none\n" {
		h.t.Fatalf("got differences %s, %v", text, err)
	}
	if list {
		must.NoError(h.t, h.wanted())
	}
}

// allPorts returns the service ports of all Services, or of those that are
// pending, in order.
func (h *history) allPorts(pending bool) (all []table.PortView) {
	for _, name := range slices.SortedFunc(h.table().ServiceNames(), cluster.ServiceName.Compare) {
		if view, _ := h.table().Service(name); view.Pending || !pending {
			all = append(all, view.Ports...)
		}
	}
	return all
}

// refuseOne makes the kernel refuse the wanted plan of a service port, or
// accept it again.
func (h *history) refuseOne() {
	all := h.allPorts(false)
	if len(all) == 0 {
		return
	}
	tag := all[h.IntN(len(all))].Tag
	if _, ok := h.refused[tag]; ok {
		delete(h.refused, tag)
		return
	}
	h.refused[tag] = h.errno()
}

// ejectSome changes the ejections of a service port, among them some that the
// table does not know.
func (h *history) ejectSome() {
	services := slices.SortedFunc(h.table().ServiceNames(), cluster.ServiceName.Compare)
	if len(services) == 0 {
		return
	}
	view, _ := h.table().Service(services[h.IntN(len(services))])
	if len(view.Ports) == 0 {
		return
	}
	name := cluster.PortName{ServiceName: view.ServiceName, Port: view.Ports[h.IntN(len(view.Ports))].Name}
	u, _ := h.table().Usable(name)
	endpoints, local := u.Plan.Usable()
	if h.IntN(2) == 0 {
		endpoints = local
	}
	var ejections []cluster.Ejection
	var begun []netip.AddrPort
	for _, at := range endpoints {
		if h.IntN(2) == 0 {
			ejections = append(ejections, cluster.Ejection{Endpoint: at})
		}
		if h.IntN(2) == 0 {
			begun = append(begun, at)
		}
	}
	h.table().SetEjections(name, ejections, begun)
}

func (h *history) errno() unix.Errno {
	return []unix.Errno{unix.ENOMEM, unix.EINVAL, unix.EEXIST, unix.ENOENT}[h.IntN(4)]
}

// commit carries out a commit, or has a fault.
func (h *history) commit(_ *nft.Batch, commit func() error) error {
	if h.calm == 0 {
		return commit()
	}
	writes := table.Writes(h.table())
	for _, tag := range slices.Sorted(maps.Keys(writes)) {
		if errno, ok := h.refused[tag]; ok && writes[tag] {
			return tabletest.Refuse(errno, tag)
		}
	}
	if h.IntN(h.calm) > 0 {
		return commit()
	}
	switch h.IntN(10) {
	case 0, 1: // the answer is lost
		if err := commit(); err != nil {
			return err
		}
		return nft.ErrUnknownOutcome
	case 2: // the request is lost
		return nft.ErrUnknownOutcome
	case 3:
		h.disturb()
	case 4:
		return fmt.Errorf("send: %w", unix.ENOBUFS)
	case 5:
		return tabletest.Refuse(h.errno())
	default:
		if tags := slices.Sorted(maps.Keys(writes)); len(tags) > 0 {
			first, second := tags[h.IntN(len(tags))], tags[h.IntN(len(tags))]
			return tabletest.Refuse(h.errno(), []uint32{first, second}[:1+h.IntN(2)]...)
		}
	}
	return commit()
}

// disturb is a commit of another program. It may change our table in a way that
// verification finds.
func (h *history) disturb() {
	ours := h.Family.String() + " " + ruleset.TableName
	command := []string{
		"add table ip other; delete table ip other", "flush ruleset", "flush chain " + ours + " services",
		"flush map " + ours + " class-chains",
	}[h.IntN(4)]
	_, err := h.runNFT(command) // it fails if the table does not exist
	h.foreign = err == nil
}

// While the changes of namespaces wait, for their turns or because the
// namespaces took long, no sync fails without a fault, or rewrites the table.
// In the end, the kernel has what is wanted, and nothing waits, also after
// faults.
func TestRandomTurns(t *testing.T) {
	eachHistory(t, func(h *history) {
		for range 6 {
			for range 3 {
				h.turns(h.seed%4 > 1)
			}
			h.end()
			must.NoError(h.t, finish(h.table()))
			h.check(false)
		}
		h.check(true)
	})
}

// turns changes Services in syncs that write one part in most cases, and that
// let all namespaces wait in some.
func (h *history) turns(faults bool) {
	h.t.Helper()
	if faults {
		h.calm = 3 * h.IntN(2)
	}
	for range h.IntN(5) {
		for range h.IntN(4) {
			h.Change(spread{h.table()})
		}
		h.limits.Time = []time.Duration{-1, time.Hour}[h.IntN(8)/7]
		h.limits.Burst = []time.Duration{-time.Hour, time.Hour, time.Hour}[h.IntN(3)]
		before := h.table().Stats()
		err := h.oneSync()
		after := h.table().Stats()
		wrong := err != nil || len(after.RefusedPorts) > 0 || after.Refusals > before.Refusals ||
			after.RewriteCauses[keep.RewriteFailure] > before.RewriteCauses[keep.RewriteFailure] ||
			after.RewriteCauses[keep.RewriteDamage] > before.RewriteCauses[keep.RewriteDamage]
		if wrong && !faults {
			h.t.Fatalf("after a sync without a fault: %v, %d refused, or a rewrite", err, len(after.RefusedPorts))
		}
	}
}

// spread passes Services to a Table, in three namespaces.
type spread struct{ *table.Table }

func (s spread) name(n cluster.ServiceName) cluster.ServiceName {
	hash := fnv.New32()
	hash.Write([]byte(n.Name))
	n.Namespace = fmt.Sprint("ns", hash.Sum32()%3)
	return n
}

func (s spread) SetService(svc *cluster.Service) {
	moved := *svc
	moved.Name = s.name(svc.Name)
	s.Table.SetService(&moved)
}

func (s spread) DeleteService(n cluster.ServiceName) { s.Table.DeleteService(s.name(n)) }

func (s spread) SetEndpoints(n cluster.ServiceName, source string, endpoints []*cluster.Endpoint) {
	s.Table.SetEndpoints(s.name(n), source, endpoints)
}
