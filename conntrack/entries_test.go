package conntrack

import "testing"

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
