package table

import (
	"net/netip"
	"runtime"
	"testing"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// The memory of many frontends is released with them.
func TestClaimsReleaseMemory(t *testing.T) {
	c := newClaims(nil)
	p := &portState{service: &serviceState{}}
	mark := func(*serviceState) {}
	heap := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	frontend := func(i int) ruleset.Frontend {
		return ruleset.Frontend{
			Addr: netip.AddrFrom4([4]byte{192, byte(i >> 16), byte(i >> 8), byte(i)}), Port: 80, Proto: cluster.TCP,
		}
	}
	const many, kept, most = 200_000, 100, 1 << 20
	before := heap()
	for i := range many {
		c.add(frontend(i), claim{port: p}, mark)
	}
	for i := kept; i < many; i++ {
		c.release(frontend(i), p, mark)
	}
	if after := heap(); after > before+most {
		t.Errorf("%d bytes are left", after-before)
	}
	for i := range many {
		if got := c.owner(frontend(i)); (got == p) != (i < kept) {
			t.Fatalf("frontend %d: got owner %v", i, got)
		}
	}
}
