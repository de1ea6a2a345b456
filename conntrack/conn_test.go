package conntrack

import "testing"

func TestOpenInNamespace(t *testing.T) {
	a, b := newNamespace(t), newNamespace(t)
	flows := manyFlows(1)
	a.injector(t).add(t, flows...)
	wantFlows(t, a.open(t), flows)
	wantFlows(t, b.open(t), nil)
}

func TestEntries(t *testing.T) {
	ns := newNamespace(t)
	c := ns.open(t)
	for _, flows := range [][]trackedFlow{nil, filterFlows()} {
		ns.injector(t).add(t, flows...)
		if got, err := c.Entries(); got != len(flows) || err != nil {
			t.Errorf("got %d entries, %v, want %d", got, err, len(flows))
		}
	}
}

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
