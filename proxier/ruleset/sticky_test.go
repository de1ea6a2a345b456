package ruleset

import (
	"math/big"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// stickyTable is a table with the chains of one service port and the clients of
// its affinity set.
type stickyTable struct {
	chains  map[string][]nft.Rule
	set     *nft.Set
	clients map[nft.Tuple]bool
}

func (s *stickyTable) Rules(chain string) ([]nft.Rule, error) { return s.chains[chain], nil }

func (s *stickyTable) Set(string) (*nft.Set, error) { return s.set, nil }

func (s *stickyTable) Row(set *nft.Set, key nft.Tuple) (nft.Row, error) {
	if !s.clients[key] {
		return nft.Row{}, nil
	}
	return nft.Row{Set: set, Key: key}, nil
}

// newStickyTable returns the chains of a kind. If the set is full, rules that
// update it match no packet.
func newStickyTable(rules *Ruleset, plan *Plan, kind chainKind, full bool) *stickyTable {
	table := &stickyTable{map[string][]nft.Rule{}, rules.AffinitySet(plan), map[nft.Tuple]bool{}}
	updates := func(r nft.Rule) bool {
		return full && slices.ContainsFunc(r.Expressions, func(e expr.Any) bool {
			_, ok := e.(*expr.Dynset)
			return ok
		})
	}
	for _, c := range rules.sticky(plan, kind).chains() {
		table.chains[c.Name] = slices.DeleteFunc(slices.Clone(c.Rules), updates)
	}
	return table
}

var stickyClient = netip.MustParseAddrPort("192.0.2.7:1234")

// shares returns the probability of each endpoint for the client.
func (s *stickyTable) shares(t *testing.T, chain string) map[netip.AddrPort]*big.Rat {
	t.Helper()
	packet := walk.Packet{
		Source: stickyClient, Destination: netip.MustParseAddrPort("10.96.0.1:80"), Protocol: unix.IPPROTO_TCP,
	}
	paths, err := walk.New(s, nil).Run(walk.NewPath(packet), chain)
	if err != nil {
		t.Fatal(err)
	}
	shares := make(map[netip.AddrPort]*big.Rat)
	for _, p := range paths {
		if p.Unknown != nil || !p.End.To.IsValid() {
			t.Fatalf("path ends without an endpoint: %+v, %v", p.End, p.Unknown)
		}
		if shares[p.End.To] == nil {
			shares[p.End.To] = new(big.Rat)
		}
		shares[p.End.To].Add(shares[p.End.To], p.Share)
	}
	return shares
}

// know adds the client to the set with a number.
func (s *stickyTable) know(number uint32) {
	s.clients[nft.Tuple{}.Addr(stickyClient.Addr()).Integer(number)] = true
}

// stickyPlan returns a plan with n endpoints, of which a number are in no group
// and the others in groups of a size, in an order in which groups alternate.
func stickyPlan(n, listed, size int) *Plan {
	clusterIP := Frontend{Addr: addr("10.96.0.1"), Proto: cluster.TCP}
	plan := affinityPlan(ServedFrontend{Kind: ClusterIP, Frontend: clusterIP})
	plan.Port.Protocol = cluster.TCP
	plan.Cluster = nil
	for i := range n {
		t := Target{Addr: netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)}), Port: 8080, ID: 4096 + uint32(i)}
		if i >= listed {
			t.Group = 9000 + uint32(i%((n-listed+size-1)/size))
		}
		plan.Cluster = append(plan.Cluster, t)
	}
	return plan
}

// A new client gets each endpoint with the same probability, also if the set is
// full or contains the client with a group whose endpoint is gone.
func TestStickyDraws(t *testing.T) {
	rules := newRuleset(t, Config{}, nft.IPv4)
	for _, n := range []int{1, 2, 5, 15, 16, 17, 24, 31, 50, 256, 257, 300} {
		for _, listed := range []int{0, min(n, 3), n} {
			plan := stickyPlan(n, listed, 7)
			for _, full := range []bool{false, true} {
				for _, stale := range []bool{false, true} {
					table := newStickyTable(rules, plan, toAll, full)
					if stale {
						table.know(plan.Cluster[n-1].Group)
					}
					shares := table.shares(t, "affinity.ns.svc.tcp.http")
					for _, target := range plan.Cluster {
						share := shares[target.AddrPort()]
						if share == nil || share.Cmp(big.NewRat(1, int64(n))) != 0 {
							t.Errorf("%d endpoints, %d in no group, full %v, stale %v: got share %v of %s, want 1/%d",
								n, listed, full, stale, share, target.Addr, n)
						}
					}
				}
			}
		}
	}
}

// A known client gets its endpoint.
func TestStickyKnownClients(t *testing.T) {
	rules := newRuleset(t, Config{}, nft.IPv4)
	for _, n := range []int{1, 5, 16, 50, 120} {
		plan := stickyPlan(n, min(n, 2), 6)
		table := newStickyTable(rules, plan, toAll, false)
		for _, target := range plan.Cluster {
			clear(table.clients)
			table.know(target.ID)
			table.know(target.Group)
			shares := table.shares(t, "affinity.ns.svc.tcp.http")
			if share := shares[target.AddrPort()]; len(shares) != 1 || share == nil {
				t.Errorf("%d endpoints: got %v for a client of %s", n, shares, target.Addr)
			}
		}
	}
}

// A change of one endpoint of many changes few rules.
func TestStickyChanges(t *testing.T) {
	rules := newRuleset(t, Config{}, nft.IPv4)
	const n = 1000
	before := stickyPlan(n, 0, 48)
	texts := func(p *Plan) map[string]string {
		all := make(map[string]string)
		for _, c := range rules.Chains(p) {
			for _, r := range c.Rules {
				all[c.Name] += r.Text(nft.IPv4) + "\n"
			}
		}
		return all
	}
	was := texts(before)
	for _, removed := range []int{0, n / 2, n - 1} {
		after := *before
		after.Cluster = arrange(before.Cluster, slices.Delete(slices.Clone(before.Cluster), removed, removed+1))
		rewritten, is := 0, texts(&after)
		for _, c := range rules.Chains(&after) {
			if is[c.Name] != was[c.Name] {
				rewritten += len(c.Rules)
			}
		}
		if rewritten == 0 || rewritten > n/4 {
			t.Errorf("endpoint %d removed: %d rules are rewritten, want at most %d", removed, rewritten, n/4)
		}
	}
}

// Names agrees with chains, the names of all kinds differ, and ids and groups
// can be parsed from the chains whose names name the service port.
func TestStickyNames(t *testing.T) {
	rules := newRuleset(t, Config{}, nft.IPv4)
	plan := stickyPlan(100, 3, 10)
	plan.Local = plan.Cluster[:50]
	seen := make(map[string]bool)
	for _, kind := range []chainKind{toAll, toLocal} {
		var names []string
		found := make(map[netip.AddrPort]StickyRule)
		for _, c := range rules.sticky(plan, kind).chains() {
			if seen[c.Name] {
				t.Errorf("two chains are called %s", c.Name)
			}
			seen[c.Name] = true
			names = append(names, c.Name)
			port, ok := ParseStickyChain(c.Name)
			if !ok {
				continue
			}
			if port != plan.AffinityName() {
				t.Errorf("chain %s: got service port %q, want %q", c.Name, port, plan.AffinityName())
			}
			for _, r := range c.Rules {
				if rule, ok := ParseStickyRule(r); ok {
					if other, ok := found[rule.Endpoint]; ok && other != rule {
						t.Errorf("chain %s: got %v, and %v before", c.Name, rule, other)
					}
					found[rule.Endpoint] = rule
				}
			}
		}
		if want := rules.sticky(plan, kind).names(); !slices.Equal(names, want) {
			t.Errorf("got names %q, want %q", want, names)
		}
		for _, target := range plan.list(kind.policy()).targets {
			want := StickyRule{target.AddrPort(), target.ID, target.Group, plan.ClientSet}
			if got := found[target.AddrPort()]; got != want {
				t.Errorf("%s: got %v, want %v", target.Addr, got, want)
			}
		}
	}
	for _, other := range []string{newPrefixes[toAll] + "8.ns.svc.tcp.http", "affinity-external.ns.svc", "services"} {
		if name, ok := ParseStickyChain(other); ok {
			t.Errorf("chain %s is parsed as one for known clients of %s", other, name)
		}
	}
}

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
