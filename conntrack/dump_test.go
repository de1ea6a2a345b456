package conntrack

import "testing"

// A dump that was not read to its end does not affect the next one.
func TestListFlowsLeftEarly(t *testing.T) {
	ns := newNamespace(t)
	flows := manyFlows(2000) // several parts
	ns.injector(t).add(t, flows...)
	c := ns.open(t)
	for range 3 {
		for range mustYield(t, c.listFlows(Selection{})) {
			break
		}
	}
	wantFlows(t, c, flows)
}
