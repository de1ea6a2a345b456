package lab

import (
	"net/netip"
	"testing"
)

// Free addresses are reused after all others.
func TestPodAddressesReused(t *testing.T) {
	_, _, ranges := nodeAddrs(1)
	held := &Pod{Namespace: &Namespace{IPv4: AddrIn(ranges[0], 7), IPv6: AddrIn(ranges[1], 9)}}
	node := &Node{
		Namespace: &Namespace{Name: "node1"},
		PodRanges: ranges,
		pods:      map[string]*Pod{"held": held},
	}
	const free = 251 // places 2 to 254 without 7 and 9
	given := map[netip.Addr]int{}
	for range 2 * free {
		config, err := node.withDefaults(PodConfig{Name: "pod"})
		if err != nil {
			t.Fatal(err)
		}
		given[config.IPv4]++
		given[config.IPv6]++
	}
	if len(given) != 2*free {
		t.Errorf("got %d different addresses, want %d", len(given), 2*free)
	}
	for addr, times := range given {
		if times != 2 || addr == held.IPv4 || addr == held.IPv6 {
			t.Errorf("got address %s %d times, want 2", addr, times)
		}
		if !ranges[0].Contains(addr) && !ranges[1].Contains(addr) {
			t.Errorf("got address %s outside the node's ranges", addr)
		}
	}
}

func TestPodAddressesExhausted(t *testing.T) {
	_, _, ranges := nodeAddrs(1)
	node := &Node{Namespace: &Namespace{}, PodRanges: ranges, pods: map[string]*Pod{}}
	for place := 2; place <= 254; place++ {
		node.pods[AddrIn(ranges[0], place).String()] = &Pod{Namespace: &Namespace{IPv4: AddrIn(ranges[0], place)}}
	}
	if config, err := node.withDefaults(PodConfig{Name: "pod"}); err == nil {
		t.Errorf("got %s from a full node, want an error", config.IPv4)
	}
}
