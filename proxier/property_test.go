package proxier

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
)

// fresh returns what the desired table of b lists as when nft loads it into an empty namespace.
func fresh(t testing.TB, b *Backend) []string {
	t.Helper()
	var text bytes.Buffer
	if err := b.Fprint(&text); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "nft -f - && nft list table "+b.layout.family.String()+" "+TableName)
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

// checkTable compares the table in the kernel with what the backend was told.
func checkTable(t testing.TB, b *Backend) {
	t.Helper()
	want, got := fresh(t, b), withoutIdle(list(t, b.layout.family))
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

func (c changer) service(i int) *Service {
	svc := &Service{
		Name: ServiceName{"ns", fmt.Sprintf("svc-%d", i)}, Families: []nft.Family{c.family},
		Created:        time.Unix(int64(c.IntN(3)), 0),
		ClusterIPs:     []netip.Addr{c.addr(96, i)},
		InternalPolicy: Policy(c.IntN(2)), ExternalPolicy: Policy(c.IntN(2)),
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
		port := ServicePort{Name: fmt.Sprintf("p%d", p), Protocol: protocols[c.IntN(3)], Port: uint16(80 + p)}
		if c.IntN(2) == 0 {
			port.NodePort = uint16(30000 + c.IntN(6))
		}
		svc.Ports = append(svc.Ports, port)
	}
	return svc
}

func (c changer) endpoint() *Endpoint {
	e := &Endpoint{
		EndpointKey: EndpointKey{Source: fmt.Sprintf("slice-%d", c.IntN(2)), Addr: c.addr(244, c.IntN(9))},
		Node:        []string{"node1", "node2", ""}[c.IntN(3)], Ready: c.IntN(4) > 0, Terminating: c.IntN(4) == 0,
	}
	e.Serving = e.Ready || c.IntN(2) == 0
	if c.IntN(4) == 0 {
		e.Hints = &Hints{Zones: []string{"a", "b"}[:1+c.IntN(2)], Nodes: []string{"node1", "node2"}[:c.IntN(2)]}
	}
	for p := range 3 {
		for _, proto := range protocols {
			e.Ports = append(e.Ports, EndpointPort{Name: fmt.Sprintf("p%d", p), Protocol: proto, Port: uint16(8000 + p*c.IntN(2))})
		}
	}
	return e
}

// endpoints are some of a source, by address.
func (c changer) endpoints(source string) []*Endpoint {
	all := map[netip.Addr]*Endpoint{}
	for range c.IntN(4) {
		e := c.endpoint()
		e.Source = source
		all[e.Addr] = e
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *Endpoint) int { return a.Addr.Compare(b.Addr) })
}

// change tells s something at random.
func (c changer) change(s Sink) {
	name := ServiceName{"ns", fmt.Sprintf("svc-%d", c.IntN(randomServices))}
	switch c.IntN(12) {
	case 0:
		s.DeleteService(name)
	case 1, 2, 3:
		s.SetService(c.service(c.IntN(randomServices)))
	case 4, 5:
		s.DeleteEndpoint(name, c.endpoint().EndpointKey)
	case 6:
		n := sampleNode()
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

func randomConfig(f nft.Family, all bool) *Config {
	c := sampleConfig()
	if !all {
		c.NodePortAddresses = NodePortAddresses{CIDRs: []netip.Prefix{prefix("10.0.0.0/8"), prefix("fd00::/8")}}
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
				newNamespace(t)
				c := changer{rand.New(rand.NewPCG(seed, 1)), f}
				b := newBackend(t, randomConfig(f, seed%2 == 0), f)
				for range rounds(40) {
					for range 1 + c.IntN(12) {
						c.change(b)
					}
					mustSync(t, b)
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
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	tellSample(b)
	mustSync(t, b)
	before, err := b.kernel.Generation()
	if err != nil {
		t.Fatal(err)
	}
	done := b.stats
	tellSample(b)
	mustSync(t, b)
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
	if before != after || b.stats != done {
		t.Errorf("generation went from %d to %d, statistics from %+v to %+v", before, after, done, b.stats)
	}
}

// faultyKernel loses answers, refuses rows and lets others in between, at random.
type faultyKernel struct {
	kernel
	*rand.Rand
	t testing.TB
}

func (k *faultyKernel) Commit(b *nft.Batch) error {
	switch k.IntN(8) {
	case 0: // the kernel did it, but nobody was told
		if err := k.kernel.Commit(b); err != nil {
			return err
		}
		return nft.ErrUnknownOutcome
	case 1: // the kernel did not get it
		return nft.ErrUnknownOutcome
	case 2:
		runNFT(k.t, "", "flush", "ruleset")
	case 3:
		runNFT(k.t, "add table ip other; add chain ip other c; delete table ip other", "-f", "-")
	case 4:
		runNFT(k.t, "", "-f", "/dev/null")
		exec.Command("nft", "flush", "chain", "ip", TableName, chainServices).Run() // may not be there
	}
	return k.kernel.Commit(b)
}

// Whatever goes wrong, the table is right once nothing goes wrong any more.
func TestFaults(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			newNamespace(t)
			c := changer{rand.New(rand.NewPCG(seed, 2)), nft.IPv4}
			b := newBackend(t, randomConfig(nft.IPv4, true), nft.IPv4)
			sound := b.kernel
			for range rounds(10) {
				b.kernel = &faultyKernel{sound, c.Rand, t}
				for range 8 {
					c.change(b)
					var tampered *damage
					if err := b.Sync(); err != nil && !errors.Is(err, nft.ErrUnknownOutcome) && !errors.As(err, &tampered) {
						t.Fatal(err)
					}
					b.repairs.pause = 0
				}
				b.kernel = sound
				mustSync(t, b)
				if err := b.Check(); err != nil {
					t.Fatal(err)
				}
				checkTable(t, b)
			}
		})
	}
}
