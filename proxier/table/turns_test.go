package table

import (
	"fmt"
	"hash/fnv"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// spread passes Services to a Table, in three namespaces.
type spread struct{ *Table }

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

// While the changes of namespaces wait, for their turns or because the
// namespaces took long, no sync fails without a fault. In the end, the kernel
// has what is desired, and nothing waits, also after faults.
func TestRandomTurns(t *testing.T) {
	for seed := *firstHistory; seed < *firstHistory+uint64(rounds(int(*histories))); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			tabletest.NewNamespace(t)
			h := newHistory(t, seed)
			sink := spread{h.table}
			for range 6 {
				for range 3 {
					h.turns(sink, seed%2 == 1)
				}
				h.lastTurns()
			}
			checkTable(t, h.table)
		})
	}
}

// turns changes Services in syncs that write one part in most cases, and that
// let all namespaces wait in some.
func (h *history) turns(sink spread, faults bool) {
	h.t.Helper()
	h.kernel().OnCommit = nil
	if faults && h.IntN(2) == 0 {
		h.calm, h.kernel().OnCommit = 3, h.commit
	}
	for range h.IntN(5) {
		for range h.IntN(4) {
			h.Change(sink)
		}
		limits := h.table.config.Limits
		limits.Time = []time.Duration{-1, time.Hour}[h.IntN(8)/7]
		limits.Burst = []time.Duration{-time.Hour, time.Hour, time.Hour}[h.IntN(3)]
		before := h.table.Stats()
		sync := h.table.Sync
		if h.IntN(8) == 0 {
			sync = h.table.Resync
		}
		err := sync()
		after := h.table.Stats()
		wrong := err != nil || failing(h.table) > 0 || after.Refusals > before.Refusals ||
			after.RewriteCauses[keep.RewriteFailure] > before.RewriteCauses[keep.RewriteFailure] ||
			after.RewriteCauses[keep.RewriteDamage] > before.RewriteCauses[keep.RewriteDamage]
		if wrong && !faults {
			h.t.Fatalf("after a sync without a fault: %v, %d refused, or a rewrite", err, failing(h.table))
		}
	}
}

// lastTurns ends all faults and syncs until nothing waits.
func (h *history) lastTurns() {
	h.t.Helper()
	h.kernel().OnCommit = nil
	h.table.config.Limits.Burst = time.Hour
	if err := h.table.Resync(); err != nil {
		h.t.Fatal(err)
	}
	mustCheck(h.t, h.table)
	for n := 0; ; n++ {
		wait, ok := h.table.Next()
		if !ok {
			break
		}
		if wait > 0 || n > 200 {
			h.t.Fatalf("after %d syncs, the next one is due after %v", n, wait)
		}
		if err := h.table.Sync(); err != nil {
			h.t.Fatal(err)
		}
	}
	d := &h.table.desired
	if n := failing(h.table); n > 0 || !h.table.UpToDate() || len(d.dirty)+len(d.released) > 0 {
		h.t.Fatalf("%d service ports cannot be written, up to date: %v, %d Services wait, %d frontends are released",
			n, h.table.UpToDate(), len(d.dirty), len(d.released))
	}
	for _, s := range d.services {
		if d.namespaces[s.name.Namespace] != s.namespace {
			h.t.Fatalf("Service %s is in a namespace that was forgotten", s.name)
		}
	}
	checkDiff(h.t, h.table)
}
