package lab

import (
	"net/netip"
	"testing"
)

// Addresses come back when all others were given out, but not those in use.
func TestPodAddressesWrapAround(t *testing.T) {
	plan := nodePlans()[0]
	held := &Pod{Namespace: &Namespace{IPv4: nthAddr(plan.pods4, 7), IPv6: nthAddr(plan.pods6, 9)}}
	node := &Node{
		Namespace: &Namespace{Name: plan.name},
		PodRanges: []netip.Prefix{plan.pods4, plan.pods6},
		pods:      map[string]*Pod{"held": held},
	}
	const free = 251 // places 2 to 254 without 7 and 9
	given := map[netip.Addr]int{}
	for range 2 * free {
		config, err := node.complete(PodConfig{Name: "pod"})
		if err != nil {
			t.Fatal(err)
		}
		given[config.IPv4]++
		given[config.IPv6]++
	}
	if len(given) != 2*free {
		t.Errorf("%d different addresses were given out, want %d", len(given), 2*free)
	}
	for addr, times := range given {
		if times != 2 || addr == held.IPv4 || addr == held.IPv6 {
			t.Errorf("%s was given out %d times", addr, times)
		}
		if !plan.pods4.Contains(addr) && !plan.pods6.Contains(addr) {
			t.Errorf("%s is not in the node's ranges", addr)
		}
	}
}

func TestPodAddressesRunOut(t *testing.T) {
	plan := nodePlans()[0]
	node := &Node{Namespace: &Namespace{}, PodRanges: []netip.Prefix{plan.pods4, plan.pods6}, pods: map[string]*Pod{}}
	for place := 2; place <= 254; place++ {
		node.pods[nthAddr(plan.pods4, place).String()] = &Pod{Namespace: &Namespace{IPv4: nthAddr(plan.pods4, place)}}
	}
	if config, err := node.complete(PodConfig{Name: "pod"}); err == nil {
		t.Errorf("a full node gave out %s", config.IPv4)
	}
}
