package table

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// fresh returns what the desired table of b lists as when nft loads it into an empty namespace.
func fresh(t testing.TB, b *Table) []string {
	t.Helper()
	var text bytes.Buffer
	if err := b.Fprint(&text); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "nft -f - && nft list table "+b.Family().String()+" "+ruleset.TableName)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	cmd.Stdin = strings.NewReader(text.String())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nft does not load what Fprint writes: %v\n%s\n%s", err, out, text.String())
	}
	return canonical(string(out))
}

var balancerChain = regexp.MustCompile(`^chain ((balance|balance-all|external|nodeport|nodeport-balance|nodeport-balance-all)-\d+) {`)

var affinitySet = regexp.MustCompile(`^set (clients-\d+) {`)

// withoutIdle returns a listing without the balancers that no row leads to and the
// affinity sets that no rule uses: they are kept for the next Service.
func withoutIdle(listing []string) []string {
	all := strings.Join(listing, "\n") + "\n"
	return slices.DeleteFunc(slices.Clone(listing), func(block string) bool {
		if m := affinitySet.FindStringSubmatch(block); m != nil {
			return !strings.Contains(all, "@"+m[1]+" ")
		}
		m := balancerChain.FindStringSubmatch(block)
		return m != nil && !regexp.MustCompile(`goto `+m[1]+`\b[^-]`).MatchString(all)
	})
}

// checkTable compares the table in the kernel with what the table was told.
func checkTable(t testing.TB, b *Table) {
	t.Helper()
	want, got := fresh(t, b), withoutIdle(list(t, b.Family()))
	if !slices.Equal(want, got) {
		t.Fatalf("the table is not as if written fresh:\n%s", difference(want, got))
	}
}

// changer makes random changes to a sink.
type changer struct {
	*rand.Rand
	family nft.Family
}

func (c changer) addr(net byte, n int) netip.Addr {
	if c.family == nft.IPv4 {
		return netip.AddrFrom4([4]byte{10, net, byte(n >> 8), byte(n)})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 3: net, 14: byte(n >> 8), 15: byte(n)})
}

const randomServices = 8

var allProtocols = []cluster.Protocol{cluster.TCP, cluster.UDP, cluster.SCTP}

func (c changer) service(i int) *cluster.Service {
	svc := &cluster.Service{
		Name: cluster.ServiceName{Namespace: "ns", Name: fmt.Sprintf("svc-%d", i)}, Families: []nft.Family{c.family},
		Created:        time.Unix(int64(c.IntN(3)), 0),
		ClusterIPs:     []netip.Addr{c.addr(96, i)},
		InternalPolicy: cluster.Policy(c.IntN(2)), ExternalPolicy: cluster.Policy(c.IntN(2)),
	}
	for range c.IntN(3) {
		svc.ExternalIPs = append(svc.ExternalIPs, c.addr(192, c.IntN(4))) // few, so that there are conflicts
	}
	if c.IntN(2) == 0 {
		svc.LoadBalancerIPs = []netip.Addr{c.addr(198, c.IntN(4))}
		for range c.IntN(4) {
			svc.SourceRanges = append(svc.SourceRanges, netip.PrefixFrom(c.addr(byte(c.IntN(3)), c.IntN(500)), c.IntN(c.addr(0, 0).BitLen()+1)))
		}
	}
	if c.IntN(3) == 0 {
		svc.AffinityTimeout = time.Duration(1+c.IntN(3)) * time.Minute
	}
	for p := range 1 + c.IntN(3) {
		port := cluster.ServicePort{Name: fmt.Sprintf("p%d", p), Protocol: []cluster.Protocol{cluster.TCP, cluster.UDP, cluster.SCTP}[c.IntN(3)], Port: uint16(80 + p)}
		if c.IntN(2) == 0 {
			port.NodePort = uint16(30000 + c.IntN(6))
		}
		svc.Ports = append(svc.Ports, port)
	}
	return svc
}

func (c changer) endpoint() *cluster.Endpoint {
	e := &cluster.Endpoint{
		EndpointKey: cluster.EndpointKey{Source: fmt.Sprintf("slice-%d", c.IntN(2)), Addr: c.addr(244, c.IntN(9))},
		Node:        []string{"node1", "node2", ""}[c.IntN(3)], Ready: c.IntN(4) > 0, Terminating: c.IntN(4) == 0,
	}
	e.Serving = e.Ready || c.IntN(2) == 0
	if c.IntN(4) == 0 {
		e.Hints = &cluster.Hints{Zones: []string{"a", "b"}[:1+c.IntN(2)], Nodes: []string{"node1", "node2"}[:c.IntN(2)]}
	}
	for p := range 3 {
		for _, proto := range []cluster.Protocol{cluster.TCP, cluster.UDP, cluster.SCTP} {
			e.Ports = append(e.Ports, cluster.EndpointPort{Name: fmt.Sprintf("p%d", p), Protocol: proto, Port: uint16(8000 + p*c.IntN(2))})
		}
	}
	return e
}

// endpoints are some of a source, by address.
func (c changer) endpoints(source string) []*cluster.Endpoint {
	all := map[netip.Addr]*cluster.Endpoint{}
	for range c.IntN(4) {
		e := c.endpoint()
		e.Source = source
		all[e.Addr] = e
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *cluster.Endpoint) int { return a.Addr.Compare(b.Addr) })
}

// change tells s something at random.
func (c changer) change(s cluster.Sink) {
	name := cluster.ServiceName{Namespace: "ns", Name: fmt.Sprintf("svc-%d", c.IntN(randomServices))}
	switch c.IntN(12) {
	case 0:
		s.DeleteService(name)
	case 1, 2, 3:
		s.SetService(c.service(c.IntN(randomServices)))
	case 4, 5:
		s.DeleteEndpoint(name, c.endpoint().EndpointKey)
	case 6:
		n := tabletest.Node()
		n.Zone = []string{"", "a", "b"}[c.IntN(3)]
		n.ServiceCIDRs = n.ServiceCIDRs[:c.IntN(3)]
		n.NodePortIPs = []netip.Addr{c.addr(30, 1), c.addr(30, 2), c.addr(30, 3)}[:c.IntN(4)]
		s.SetNode(n)
	case 7, 8:
		s.SetEndpoints(name, "slice-0", c.endpoints("slice-0"))
	default:
		s.SetEndpoint(name, c.endpoint())
	}
}

func randomConfig(f nft.Family, all bool) Config {
	c := sampleConfig()
	if !all {
		c.Rules.NodePortAddresses = ruleset.NodePortAddresses{CIDRs: []netip.Prefix{prefix("10.0.0.0/8"), prefix("fd00::/8")}}
	}
	return c
}

// rounds is how often a random test repeats itself: less with -short, as on emulated machines.
func rounds(n int) int {
	if testing.Short() {
		return (n + 4) / 5
	}
	return n
}

// Applying the difference from A to B to a kernel that holds A lists as B written fresh does, for random A and B.
func TestRandomChanges(t *testing.T) {
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%s/%d", f, seed), func(t *testing.T) {
				tabletest.NewNamespace(t)
				c := changer{rand.New(rand.NewPCG(seed, 1)), f}
				b := newTable(t, randomConfig(f, seed%2 == 0), f)
				for range rounds(40) {
					for range 1 + c.IntN(12) {
						c.change(b)
					}
					tabletest.Sync(t, b)
					checkTable(t, b)
				}
				if b.stats.Rewrites > 1 {
					t.Errorf("%d rewrites, want none but the first", b.stats.Rewrites)
				}
			})
		}
	}
}

// A sync with nothing changed sends nothing to the kernel.
func TestIdleSync(t *testing.T) {
	tabletest.NewNamespace(t)
	b := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(b)
	tabletest.Sync(t, b)
	before, err := b.kernel.Generation()
	if err != nil {
		t.Fatal(err)
	}
	done := b.stats
	tabletest.PassSample(b)
	tabletest.Sync(t, b)
	if err := b.Check(); err != nil {
		t.Fatal(err)
	}
	if err := b.Resync(); err != nil {
		t.Fatal(err)
	}
	after, err := b.kernel.Generation()
	if err != nil {
		t.Fatal(err)
	}
	if before != after || b.stats.Transactions != done.Transactions {
		t.Errorf("generation went from %d to %d, statistics from %+v to %+v", before, after, done, b.stats)
	}
}

// faults returns a function that commits, and at random loses an answer or a
// request, or changes the ruleset first.
func faults(t testing.TB, random *rand.Rand) func(*nft.Batch, func() error) error {
	return func(_ *nft.Batch, commit func() error) error {
		switch random.IntN(8) {
		case 0: // the answer is lost
			if err := commit(); err != nil {
				return err
			}
			return nft.ErrUnknownOutcome
		case 1: // the request is lost
			return nft.ErrUnknownOutcome
		case 2:
			tabletest.NFT(t, "", "flush", "ruleset")
		case 3:
			tabletest.LoadNFT(t, "add table ip other; add chain ip other c; delete table ip other")
		case 4:
			tabletest.NFT(t, "", "-f", "/dev/null")
			exec.Command("nft", "flush", "chain", "ip", ruleset.TableName, "services").Run() // may not exist
		}
		return commit()
	}
}

// Whatever goes wrong, the table is right once nothing goes wrong any more.
func TestFaults(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			tabletest.NewNamespace(t)
			c := changer{rand.New(rand.NewPCG(seed, 2)), nft.IPv4}
			b := newTable(t, randomConfig(nft.IPv4, true), nft.IPv4)
			k := injectFaults(b)
			for range rounds(10) {
				k.OnCommit = faults(t, c.Rand)
				for range 8 {
					c.change(b)
					var tampered *damage
					if err := b.Sync(); err != nil && !errors.Is(err, nft.ErrUnknownOutcome) && !errors.As(err, &tampered) {
						t.Fatal(err)
					}
					b.observed.repairs.pause = 0
				}
				k.OnCommit = nil
				tabletest.Sync(t, b)
				if err := b.Check(); err != nil {
					t.Fatal(err)
				}
				checkTable(t, b)
			}
		})
	}
}
