package table

import (
	"flag"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

var (
	histories    = flag.Uint64("histories", 8, "number of histories of TestRandomFaults")
	firstHistory = flag.Uint64("first-history", 0, "seed of the first history of TestRandomFaults")
)

// After random changes and faults, no packet reaches an endpoint that is gone,
// and no client that is not allowed reaches any, whenever a sync succeeded. The
// first sync without a fault makes the table in the kernel equal to the desired
// table, and refuses nothing.
func TestRandomFaults(t *testing.T) {
	for seed := *firstHistory; seed < *firstHistory+uint64(rounds(int(*histories))); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			tabletest.NewNamespace(t)
			h := newHistory(t, seed)
			for range 1 + h.IntN(3) {
				h.faulty()
				h.clean()
			}
		})
	}
}

// history is a random history of a table.
type history struct {
	tabletest.Random
	t     *testing.T
	seed  uint64
	table *Table
	// calm is the number of commits of which one has a fault.
	calm int
	// refused are service ports whose wanted plans the kernel refuses.
	refused map[uint32]unix.Errno
	foreign bool // another program changed the table
	synced  int  // number of changes at the last sync that succeeded
	// had are the frontends that service ports ever had.
	had map[ruleset.Frontend]bool
}

func newHistory(t *testing.T, seed uint64) *history {
	family := []nft.Family{nft.IPv4, nft.IPv6}[seed%2]
	h := &history{
		Random: tabletest.NewRandom(seed, 2, family), t: t, seed: seed, refused: make(map[uint32]unix.Errno),
		had: make(map[ruleset.Frontend]bool),
	}
	h.start()
	h.Replay(h.table)
	return h
}

// start starts a process.
func (h *history) start() {
	if h.table != nil {
		h.table.Close()
	}
	config := randomConfig(h.seed%3 > 0)
	config.Limits = smallParts()
	if h.seed%4 == 0 {
		config.Limits.ColdBytes = 4000
	}
	h.table = newTable(h.t, config, h.Family)
	k := injectFaults(h.table)
	k.NoCounts = h.seed%5 < 2
	clear(h.refused) // it has the tags of the other process
}

// faulty changes the table and syncs it, with faults.
func (h *history) faulty() {
	h.calm = 1 + h.IntN(5)
	h.kernel().OnCommit = h.commit
	for range 12 {
		switch {
		case h.IntN(12) == 0:
			h.start()
			h.kernel().OnCommit = h.commit
			h.Replay(h.table)
		case h.IntN(4) == 0:
			h.Revert(h.table, 1+h.IntN(3))
		case h.IntN(3) == 0:
			h.Revert(h.table, h.Changes()-h.synced)
		}
		for range h.IntN(4) {
			h.Change(h.table)
		}
		if h.IntN(6) == 0 {
			h.refuse()
		}
		h.sync()
	}
}

func (h *history) kernel() *tabletest.Kernel { return h.table.keeper.Kernel().(*tabletest.Kernel) }

// sync syncs the table. If this succeeds, packets must meet what is allowed.
func (h *history) sync() {
	sync := h.table.Sync
	if h.IntN(8) == 0 {
		sync = h.table.Resync
	}
	h.remember()
	err := sync()
	for err == nil && h.foreign { // a sync without a change does not verify the table
		h.foreign = false
		err = h.table.Check()
		h.foreign = h.foreign || err != nil
	}
	switch {
	case err != nil || !h.table.UpToDate(): // a service port is held back
	case h.table.keeper.InDoubt() != "":
		h.t.Fatalf("a sync succeeded, and the table is in doubt: %s", h.table.keeper.InDoubt())
	default:
		h.synced = h.Changes()
		h.checkPackets()
	}
}

// remember records the frontends that the next sync can write.
func (h *history) remember() {
	for _, p := range h.table.desired.ports {
		for _, w := range p.wants {
			h.had[w.Frontend] = true
		}
	}
}

// clean ends all faults. Then one sync writes what is desired.
func (h *history) clean() {
	h.t.Helper()
	h.kernel().OnCommit = nil
	h.remember()
	if err := h.table.Resync(); err != nil {
		h.t.Fatal(err)
	}
	mustCheck(h.t, h.table)
	if n := failing(h.table); n > 0 || !h.table.UpToDate() {
		h.t.Fatalf("%d service ports are refused, up to date: %v", n, h.table.UpToDate())
	}
	h.checkPackets()
	checkDiff(h.t, h.table)
	if *histories < 100 || h.seed%8 == 0 { // nft is slow
		checkTable(h.t, h.table)
	}
}

// refuse makes the kernel refuse the wanted plan of a service port, or accept
// it again.
func (h *history) refuse() {
	tags := slices.Sorted(maps.Keys(h.table.desired.ports))
	if len(tags) == 0 {
		return
	}
	tag := tags[h.IntN(len(tags))]
	if _, ok := h.refused[tag]; ok {
		delete(h.refused, tag)
		return
	}
	h.refused[tag] = h.errno()
}

func (h *history) errno() unix.Errno {
	return []unix.Errno{unix.ENOMEM, unix.EINVAL, unix.EEXIST, unix.ENOENT}[h.IntN(4)]
}

// commit carries out a commit, or has a fault.
func (h *history) commit(_ *nft.Batch, commit func() error) error {
	for _, p := range h.pending() {
		if errno, ok := h.refused[p.tag]; ok && !writesLess(p) {
			return problem(errno, p.tag)
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
		return problem(h.errno(), 0)
	default:
		if err := h.problems(); err != nil {
			return err
		}
	}
	return commit()
}

// pending returns the service ports that the present attempt writes, sorted.
func (h *history) pending() (all []*portState) {
	for _, p := range h.table.desired.ports {
		if p.kept.Pending() && !writesNothing(p) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, comparePorts)
	return all
}

// problems returns an error about one or two service ports that the present
// attempt writes.
func (h *history) problems() error {
	ports := h.pending()
	if len(ports) == 0 {
		return nil
	}
	e := &nft.CommitError{Table: "t"}
	for range 1 + h.IntN(2) {
		p := ports[h.IntN(len(ports))]
		e.Problems = append(e.Problems, nft.Problem{Op: "add element", Object: "o", Errno: h.errno(), Tag: p.tag})
	}
	return e
}

// disturb is a commit of another program. It may change our table in a way that
// verification finds.
func (h *history) disturb() {
	table := []string{h.Family.String(), ruleset.TableName}
	switch h.IntN(4) {
	case 0:
		tabletest.LoadNFT(h.t, "add table ip other; add chain ip other c; delete table ip other")
		return
	case 1:
		tabletest.NFT(h.t, "", "flush", "ruleset")
	case 2: // the table may not exist
		exec.Command("nft", append([]string{"flush", "chain"}, append(table, "services")...)...).Run()
	case 3:
		exec.Command("nft", append([]string{"flush", "map"}, append(table, "class-chains")...)...).Run()
	}
	h.foreign = true
}

// failing returns the number of service ports that could not be written as they
// are wanted.
func failing(table *Table) (n int) {
	for range table.keeper.Failing() {
		n++
	}
	return n
}

// writesLess reports whether the next transaction writes less of a service port
// than is wanted, writesNothing whether it writes nothing of it.
func writesLess(p *portState) bool {
	_, less := p.kept.Less()
	return less
}

func writesNothing(p *portState) bool {
	next, _ := p.kept.Next(func(keep.Content, bool) (keep.Content, error) { return content{}, nil })
	return next == p.kept.Have()
}

// problem returns the kernel's error about a message, or about the whole
// transaction if tag is 0.
func problem(errno unix.Errno, tag uint32) error {
	p := nft.Problem{Op: "commit", Errno: errno}
	if tag != 0 {
		p = nft.Problem{Op: "add element", Object: "service-classes", Errno: errno, Tag: tag}
	}
	return &nft.CommitError{Table: "t", Problems: []nft.Problem{p}}
}
