package conntrack

import "testing"

func TestOpenInNamespace(t *testing.T) {
	a, b := newNamespace(t), newNamespace(t)
	flows := manyFlows(1)
	a.injector(t).add(t, flows...)
	wantFlows(t, a.open(t), flows)
	wantFlows(t, b.open(t), nil)
}
