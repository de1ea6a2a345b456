package ruleset

import (
	"net/netip"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

func newRuleset(t testing.TB, config Config, f nft.Family) *Ruleset {
	t.Helper()
	rules, err := New(config, f)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestAffinityName(t *testing.T) {
	p := &Plan{
		Service: &cluster.Service{Name: cluster.ServiceName{Namespace: "ns", Name: "svc"}},
		Port:    cluster.ServicePort{Name: "http", Protocol: cluster.TCP},
	}
	if got, want := p.AffinityName(), "ns.svc.tcp.http"; got != want {
		t.Errorf("named port: got %q, want %q", got, want)
	}
	p.Port.Name = ""
	if got, want := p.AffinityName(), "ns.svc.tcp"; got != want {
		t.Errorf("port without a name: got %q, want %q", got, want)
	}
}

// affinityPlan returns a plan with session affinity, with an endpoint on this
// node and one on another.
func affinityPlan(frontends ...ServedFrontend) *Plan {
	local := Target{Addr: netip.MustParseAddr("10.244.1.1"), Port: 8080, Here: true, ID: 4096}
	other := Target{Addr: netip.MustParseAddr("10.244.2.1"), Port: 8080, ID: 4097}
	return &Plan{
		Service: &cluster.Service{
			Name: cluster.ServiceName{Namespace: "ns", Name: "svc"}, AffinityTimeout: time.Hour,
		},
		Port:      cluster.ServicePort{Name: "http", Protocol: cluster.TCP, Port: 80},
		Frontends: frontends,
		Cluster:   []Target{local, other},
		Local:     []Target{local},
	}
}

// Whether service ports share an affinity set depends on the seed, also if
// their names differ in few bits.
func TestClientSet(t *testing.T) {
	const name, seeds, sets = "prod.web.tcp.http", 6400, ClientSets
	for _, other := range []string{"0rod.web.tcp.http", "prof.web.tcp.http", "prod.web.tcp.htt0", "dev.web.tcp.http"} {
		same := 0
		for seed := range uint64(seeds) {
			if ClientSet(seed, name) == ClientSet(seed, other) {
				same++
			}
		}
		if same == 0 || same > 2*seeds/sets {
			t.Errorf("%s and %s share a set with %d of %d seeds, want about %d", name, other, same, seeds, seeds/sets)
		}
	}
}
