package packet

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// Ports on which every pod serves. Port numbers from spareTarget on are for servers of
// a test's own.
const (
	firstTarget  = 8080
	secondTarget = 8081
	spareTarget  = 9100
	markerTarget = 9000
)

// cluster is a cluster network with a proxy on each node:
//
//	node1: pods a1, a2, pod1    node2: pods b1, b2, pod2    outside: client
//
// All pods serve; pod1 and pod2 are there to be clients.
type cluster struct {
	*lab.Lab
	t       testing.TB
	proxies []*proxy // of node1 and node2
	pods    map[string]*lab.Pod
	origins map[string]origin
	places  map[string][2]netip.Addr // by name: node addresses that are not the nodes' own
	ports   map[*lab.Namespace]*udpPorts
	last    int    // number of the last service that got addresses
	mark    uint16 // port of the marker service
}

// origin is where attempts come from.
type origin struct {
	*lab.Namespace
	// local are the source addresses to use, one a family; zero: the kernel's choice,
	// which is the namespace's own.
	local [2]netip.Addr
	ports *udpPorts
}

// udpPorts gives out source ports, none twice while a flow of the last use may be remembered: a packet that belongs to a
// known flow is no new attempt.
type udpPorts struct{ given atomic.Uint32 }

// next returns a port below those that the kernel chooses itself, and below NodePorts.
func (p *udpPorts) next() uint16 { return uint16(10000 + p.given.Add(1)%20000) }

// source returns the source address that the origin's packets begin with.
func (o origin) source(f family) netip.Addr {
	if o.local[f].IsValid() {
		return o.local[f]
	}
	return o.Addrs()[f]
}

// family is an address family, as an index into pairs of addresses.
type family int

const (
	ipv4 family = iota
	ipv6
)

func bothFamilies() []family { return []family{ipv4, ipv6} }

// String returns the family as addressType and ipFamilies have it.
func (f family) String() string { return [...]string{"IPv4", "IPv6"}[f] }

// defaultFlags are those of a cluster where nothing else is said.
func defaultFlags() []string {
	var cidrs []string
	for _, p := range lab.PodRanges() {
		cidrs = append(cidrs, p.String())
	}
	return []string{"--cluster-cidr", strings.Join(cidrs, ",")}
}

// newCluster makes a cluster whose proxies run with the default flags and these.
func newCluster(t testing.TB, flags ...string) *cluster {
	t.Helper()
	c := newIdleCluster(t, append(defaultFlags(), flags...)...)
	c.start()
	return c
}

// newIdleCluster makes a cluster whose proxies have these flags only, and do not run
// yet. Their manifests are there: the Nodes and the marker.
func newIdleCluster(t testing.TB, flags ...string) *cluster {
	t.Helper()
	c := &cluster{
		Lab:     labtest.New(t),
		t:       t,
		pods:    make(map[string]*lab.Pod),
		origins: make(map[string]origin),
		places:  make(map[string][2]netip.Addr),
		ports:   make(map[*lab.Namespace]*udpPorts),
	}
	// The client may get more addresses, and with them the choice.
	c.addOrigin("client", c.Client, [2]netip.Addr(c.Client.Addrs()))
	c.addOrigin("node1", c.Node1.Namespace, [2]netip.Addr{})
	c.addOrigin("node2", c.Node2.Namespace, [2]netip.Addr{})
	for _, name := range []string{"a1", "a2", "pod1"} {
		c.addPod(c.Node1, lab.PodConfig{Name: name})
	}
	for _, name := range []string{"b1", "b2", "pod2"} {
		c.addPod(c.Node2, lab.PodConfig{Name: name})
	}
	if _, err := c.pods["pod1"].ServeTCP(markerTarget); err != nil {
		t.Fatal(err)
	}
	for f, via := range c.Node1.Addrs() {
		c.route(c.Client, loadBalancerRanges()[f], via)
	}
	for _, node := range c.Nodes() {
		c.proxies = append(c.proxies, newProxy(t, node.Namespace, node.Name, flags...))
	}
	c.write("nodes", c.nodeManifests(nil))
	c.writeMarker()
	t.Cleanup(c.showTables)
	return c
}

// addPod adds a pod that serves.
func (c *cluster) addPod(node *lab.Node, config lab.PodConfig) *lab.Pod {
	c.t.Helper()
	pod := labtest.AddPodWith(c.t, node, config)
	labtest.Serve(c.t, firstTarget, pod.Namespace)
	labtest.Serve(c.t, secondTarget, pod.Namespace)
	c.pods[config.Name] = pod
	c.addOrigin(config.Name, pod.Namespace, [2]netip.Addr{})
	return pod
}

// addOrigin gives attempts from a namespace a name.
func (c *cluster) addOrigin(name string, at *lab.Namespace, local [2]netip.Addr) {
	if c.ports[at] == nil {
		c.ports[at] = new(udpPorts)
	}
	c.origins[name] = origin{Namespace: at, local: local, ports: c.ports[at]}
}

// addClient gives the client one more address a family, and attempts from them a name.
func (c *cluster) addClient(name string, addrs [2]netip.Addr) {
	c.t.Helper()
	for _, addr := range addrs {
		if err := c.Client.AddAddr(single(addr)); err != nil {
			c.t.Fatal(err)
		}
	}
	c.addOrigin(name, c.Client, addrs)
}

// addPlace gives a node one more address a family, on an interface of that name. The client and the other
// node find them. It is an origin too.
func (c *cluster) addPlace(name string, node *lab.Node, addrs [2]netip.Addr) {
	c.t.Helper()
	if err := node.AddInterface(name, single(addrs[ipv4]), single(addrs[ipv6])); err != nil {
		c.t.Fatal(err)
	}
	for f, addr := range addrs {
		for _, from := range []*lab.Namespace{c.Client, c.Node1.Namespace, c.Node2.Namespace} {
			if from != node.Namespace {
				c.route(from, single(addr), node.Addrs()[f])
			}
		}
	}
	c.places[name] = addrs
	c.addOrigin(name, node.Namespace, addrs)
}

func (c *cluster) route(from *lab.Namespace, to netip.Prefix, via netip.Addr) {
	c.t.Helper()
	if err := from.ReplaceRoute(to, via); err != nil {
		c.t.Fatal(err)
	}
}

func single(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

// start starts the proxies that do not run and waits for their rules.
func (c *cluster) start() {
	c.t.Helper()
	var started []*proxy
	for _, p := range c.proxies {
		if p.cmd == nil {
			p.start(c.t)
			started = append(started, p)
		}
	}
	for _, p := range started {
		p.awaitRules(c.t)
	}
}

// terminate ends the proxies that run.
func (c *cluster) terminate() {
	c.t.Helper()
	for _, p := range c.proxies {
		if p.cmd != nil {
			p.terminate(c.t)
		}
	}
}

// restart starts the proxies with other flags, and nothing but these.
func (c *cluster) restart(flags ...string) {
	c.t.Helper()
	c.terminate()
	for _, p := range c.proxies {
		p.flags = flags
	}
	c.start()
}

// write writes a manifest for both proxies, in one step.
func (c *cluster) write(name, text string) {
	c.t.Helper()
	for _, p := range c.proxies {
		writeManifest(c.t, p.dir, name, text)
	}
}

func writeManifest(t testing.TB, dir, name, text string) {
	t.Helper()
	temporary := filepath.Join(dir, "."+name)
	if err := os.WriteFile(temporary, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, name+".yaml")); err != nil {
		t.Fatal(err)
	}
}

// remove removes a manifest.
func (c *cluster) remove(name string) {
	c.t.Helper()
	for _, p := range c.proxies {
		if err := os.Remove(filepath.Join(p.dir, name+".yaml")); err != nil {
			c.t.Fatal(err)
		}
	}
}

// serve writes manifests of services and waits until they are in force.
func (c *cluster) serve(name string, services ...*service) {
	c.t.Helper()
	var text strings.Builder
	for _, s := range services {
		text.WriteString(s.manifest(c))
	}
	c.write(name, text.String())
	c.settle()
}

// settle waits until all that was written is in force.
//
// It changes the port of the marker service and waits until that can be connected to, from both nodes
// and in both families. What was written earlier was read with it or before it. It might still be on
// its way to the rules, if it comes later in the order in which a proxy carries out what it read at
// once. So the marker is changed again: before it is read, all of the last reading is done with.
func (c *cluster) settle() {
	c.t.Helper()
	for range 2 {
		c.mark++
		c.writeMarker()
		c.awaitMarker()
	}
}

func (c *cluster) awaitMarker() {
	c.t.Helper()
	for _, p := range c.proxies {
		if p.cmd == nil {
			continue
		}
		for _, f := range bothFamilies() {
			to := netip.AddrPortFrom(addrIn(lab.ServiceRanges()[f], 1), c.mark)
			eventually(c.t, fmt.Sprintf("manifests in force on %s", p.node), func() error {
				result := lab.Probe(c.t.Context(), p.at, "tcp", to, lab.ProbeOptions{Timeout: answerTimeout})
				if result.Outcome != lab.Answered {
					return fmt.Errorf("marker %v: %v", to, result)
				}
				return nil
			})
		}
	}
}

func (c *cluster) writeMarker() {
	c.t.Helper()
	if c.mark == 0 {
		c.mark = 1
	}
	marker := &service{
		name: "marker", number: 1, protocols: "TCP",
		ports:  []port{{name: "mark", number: c.mark, target: markerTarget}},
		slices: []slice{{endpoints: "pod1"}},
	}
	c.write("marker", marker.manifest(c))
}

// addrIn returns the address that lies n above the range's first one.
func addrIn(prefix netip.Prefix, n int) netip.Addr {
	raw := prefix.Masked().Addr().AsSlice()
	for i := len(raw) - 1; n > 0; i-- {
		n += int(raw[i])
		raw[i] = byte(n)
		n >>= 8
	}
	addr, _ := netip.AddrFromSlice(raw)
	return addr
}

// nodeManifests returns the manifests of both Nodes, with labels by node.
func (c *cluster) nodeManifests(labels map[string]string) string {
	var text strings.Builder
	for _, node := range c.Nodes() {
		fmt.Fprintf(&text, `---
apiVersion: v1
kind: Node
metadata:
  name: %s
  labels: {%s}
spec:
  podCIDRs: ["%s", "%s"]
status:
  addresses:
  - {type: Hostname, address: %s}
  - {type: InternalIP, address: "%s"}
  - {type: InternalIP, address: "%s"}
`, node.Name, labels[node.Name], node.PodRanges[ipv4], node.PodRanges[ipv6], node.Name, node.IPv4, node.IPv6)
	}
	return text.String()
}

// run runs a program in a namespace and returns its output.
func run(t testing.TB, at *lab.Namespace, program string, args ...string) string {
	t.Helper()
	cmd := at.Command(context.Background(), program, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s in %s: %v\n%s", program, strings.Join(args, " "), at.Name, err, &errs)
	}
	return string(out)
}

// showTables tells what the nodes' tables were when a test failed, unless they are long.
func (c *cluster) showTables() {
	if !c.t.Failed() {
		return
	}
	const long = 30_000
	for _, node := range c.Nodes() {
		out, err := node.Command(context.Background(), "nft", "list", "ruleset").CombinedOutput()
		if len(out) > long {
			out = append(out[:long], "..."...)
		}
		c.t.Logf("rules of %s (%v):\n%s", node.Name, err, out)
	}
}
