package cluster

import (
	"net/netip"
	"slices"
	"testing"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestCompareEndpointKeys(t *testing.T) {
	want := []EndpointKey{
		{"b", addr("9.0.0.1")}, {"a", addr("10.0.0.1")}, {"b", addr("10.0.0.1")}, {"a", addr("fd00::1")},
	}
	got := []EndpointKey{want[3], want[2], want[0], want[1]}
	if slices.SortFunc(got, EndpointKey.Compare); !slices.Equal(got, want) {
		t.Errorf("got order %v, want %v", got, want)
	}
	if got := want[0].Compare(want[0]); got != 0 {
		t.Errorf("equal keys: got %d, want 0", got)
	}
}

func TestRank(t *testing.T) {
	for _, tt := range []struct {
		ready, serving, terminating bool
		want                        int
	}{
		{true, true, false, 2},
		{true, false, false, 2}, // publishNotReadyAddresses
		{true, true, true, 2},
		{false, true, true, 1},
		{false, true, false, 0},
		{false, false, true, 0},
		{false, false, false, 0},
	} {
		e := &Endpoint{Ready: tt.ready, Serving: tt.serving, Terminating: tt.terminating}
		if got := e.Rank(); got != tt.want {
			t.Errorf("ready %v, serving %v, terminating %v: got %d, want %d",
				tt.ready, tt.serving, tt.terminating, got, tt.want)
		}
	}
}

func TestEqualEndpoints(t *testing.T) {
	endpoint := func() *Endpoint {
		return &Endpoint{
			EndpointKey: EndpointKey{"a", addr("10.0.0.1")},
			Ports:       []EndpointPort{{"http", TCP, 80}},
			Node:        "node1",
			Hints:       &Hints{Zones: []string{"z"}, Nodes: []string{"node1"}},
			Ready:       true,
		}
	}
	if !endpoint().Equal(endpoint()) {
		t.Error("the same endpoint: got unequal")
	}
	for name, change := range map[string]func(*Endpoint){
		"Weight":      func(e *Endpoint) { e.Weight = WeightOf(0) },
		"Source":      func(e *Endpoint) { e.Source = "b" },
		"Addr":        func(e *Endpoint) { e.Addr = addr("10.0.0.2") },
		"Ports":       func(e *Endpoint) { e.Ports[0].Port = 81 },
		"Node":        func(e *Endpoint) { e.Node = "" },
		"no Hints":    func(e *Endpoint) { e.Hints = nil },
		"Hints.Zones": func(e *Endpoint) { e.Hints.Zones = nil },
		"Hints.Nodes": func(e *Endpoint) { e.Hints.Nodes = nil },
		"Ready":       func(e *Endpoint) { e.Ready = false },
		"Serving":     func(e *Endpoint) { e.Serving = true },
		"Terminating": func(e *Endpoint) { e.Terminating = true },
	} {
		e := endpoint()
		change(e)
		if e.Equal(endpoint()) || endpoint().Equal(e) {
			t.Errorf("another %s: got equal", name)
		}
	}
}
