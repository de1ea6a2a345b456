package ruleset

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

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

// Targets with equal weights use the balancers of targets without weights, so
// that sizes of tables are few.
func TestDrawOfEqualWeights(t *testing.T) {
	for name, tt := range map[string]struct {
		balance cluster.Balance
		weights []int
		want    draw
		rows    int
	}{
		"equal":           {cluster.BalanceRandom, []int{5, 5, 5}, random, 3},
		"equal and zero":  {cluster.BalanceRandom, []int{0, 5, 0, 5}, random, 2},
		"one":             {cluster.BalanceRandom, []int{0, 5}, random, 1},
		"unequal":         {cluster.BalanceRandom, []int{5, 6}, weighted, 16},
		"equal, hashed":   {cluster.BalanceSourceHash, []int{5, 5}, sourceHash, 16},
		"default weights": {cluster.BalanceRandom, []int{1, 1}, random, 2},
	} {
		p := &Plan{TableSize: 16, Service: &cluster.Service{Balance: tt.balance}}
		for i, weight := range tt.weights {
			addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			p.Cluster = append(p.Cluster, Target{Addr: addr, Port: 80, Weight: cluster.WeightOf(weight)})
		}
		if err := p.setTables(); err != nil {
			t.Fatal(err)
		}
		if got, rows := p.draw(toAll), p.rowsOf(toAll); got != tt.want || rows != tt.rows {
			t.Errorf("%s: got draw %d of %d rows, want %d of %d", name, got, rows, tt.want, tt.rows)
		}
	}
}
