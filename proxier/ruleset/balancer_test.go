package ruleset

import "testing"

func TestParseBalancer(t *testing.T) {
	for k := range balancerKinds {
		for d := range draws {
			for _, n := range []int{1, 3, 1000} {
				want := balancer{k, d, n}
				if got, ok := parseBalancer(want.name()); !ok || got != want {
					t.Errorf("%s: got %v, %v; want %v, true", want.name(), got, ok, want)
				}
			}
		}
	}
	for _, name := range []string{
		"", "balance-", "balance-0", "balance-03", "balance-3x", "balance--1",
		"balance-hash-", "balance-hash-0", "balance-weighted", "balance-hash-hash-3",
		"external-local", "nodeport-local", "affinity.a.b.tcp.balance-3",
	} {
		if got, ok := parseBalancer(name); ok {
			t.Errorf("%q: got balancer %v, want none", name, got)
		}
	}
}
