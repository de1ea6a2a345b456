package packet

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/oracle"
)

// Ports of servers in pods. All pods serve at the first two. Those from
// spareTarget on are for single tests.
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
// All pods have servers; pod1 and pod2 are clients.
type cluster struct {
	*lab.Lab
	t       testing.TB
	proxies []*proxy // of node1 and node2
	pods    map[string]*lab.Pod
	origins map[string]origin
	places  map[string][2]netip.Addr // additional addresses of nodes, by name
	last    int                      // number of the last service with a chosen number
	mark    uint16                   // port of the marker service

	mu      sync.Mutex // guards oracles
	oracles map[*lab.Node]*oracle.Cluster

	isStory      bool                         // it has a script
	ending       bool                         // a proxy got SIGTERM
	services     map[string]*service          // by name
	serviceCIDRs map[string][]string          // applied, by name
	labels       map[string]map[string]string // of Nodes, by name
	bridges      map[string]string            // of pods behind one
	api          *apiObjects                  // of the subject; nil if proxies read manifests
}

// origin is the source of attempts.
type origin struct {
	*lab.Namespace
	// local are the source addresses, by family. The zero Addr means the
	// namespace, which the kernel chooses.
	local [2]netip.Addr
}

// source returns the source address of the origin's packets.
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

// String returns the family as in addressType and ipFamilies.
func (f family) String() string { return [...]string{"IPv4", "IPv6"}[f] }

// defaultFlags returns the default flags of a proxy.
func defaultFlags() []string {
	var cidrs []string
	for _, p := range lab.PodRanges() {
		cidrs = append(cidrs, p.String())
	}
	return []string{"--cluster-cidr", strings.Join(cidrs, ",")}
}

// setUp creates the network of an empty cluster, whose proxies have these flags
// only, and do not run yet. Their manifests have the Nodes and the marker.
func (c *cluster) setUp(t testing.TB, flags ...string) {
	t.Helper()
	c.Lab, c.t = labtest.New(t), t
	c.origins, c.places, c.services = map[string]origin{}, map[string][2]netip.Addr{}, map[string]*service{}
	c.serviceCIDRs, c.labels, c.bridges = map[string][]string{}, map[string]map[string]string{}, map[string]string{}
	// The client may get more addresses, of which the kernel would choose
	// one.
	c.addOrigin("client", c.Client, [2]netip.Addr(c.Client.Addrs()))
	c.addOrigin("node1", c.Node1.Namespace, [2]netip.Addr{})
	c.addOrigin("node2", c.Node2.Namespace, [2]netip.Addr{})
	var err error
	c.pods, err = c.AddPods([]uint16{firstTarget, secondTarget}, "a1", "a2", "pod1", "b1", "b2", "pod2")
	must.NoError(t, err)
	for name, pod := range c.pods {
		c.addOrigin(name, pod.Namespace, [2]netip.Addr{})
	}
	for _, name := range markerPods() {
		if _, err := c.pods[name].ServeTCP(markerTarget); err != nil {
			t.Fatal(err)
		}
	}
	for f, via := range c.Node1.Addrs() {
		c.route(c.Client, loadBalancerRanges()[f], via)
	}
	for _, node := range c.Nodes() {
		c.proxies = append(c.proxies, newProxy(t, node.Namespace, node.Name, flags...))
	}
	if subject() != "" {
		c.api = newAPIObjects(t, c.Lab)
		for _, p := range c.proxies {
			p.objects = []string{"--kubeconfig", c.api.AdminKubeconfig()}
		}
	}
	for _, node := range c.Nodes() {
		c.writeNode(node, nil)
	}
	c.writeMarker()
	t.Cleanup(func() { labtest.LogTables(t, c.Nodes()...) })
}

// addPod adds a pod with servers.
func (c *cluster) addPod(node *lab.Node, config lab.PodConfig) *lab.Pod {
	c.t.Helper()
	pod := labtest.AddPodWith(c.t, node, config)
	labtest.Serve(c.t, firstTarget, pod.Namespace)
	labtest.Serve(c.t, secondTarget, pod.Namespace)
	c.pods[config.Name], c.bridges[config.Name] = pod, config.Bridge
	c.addOrigin(config.Name, pod.Namespace, [2]netip.Addr{})
	return pod
}

// addOrigin names a source of attempts.
func (c *cluster) addOrigin(name string, at *lab.Namespace, local [2]netip.Addr) {
	c.origins[name] = origin{Namespace: at, local: local}
}

// addClient adds addresses to the client, and names them as an origin.
func (c *cluster) addClient(name string, addrs [2]netip.Addr) {
	c.t.Helper()
	for _, addr := range addrs {
		must.NoError(c.t, c.Client.AddAddr(single(addr)))
	}
	c.addOrigin(name, c.Client, addrs)
}

// addPlace adds addresses to a node, on an interface of that name. The client
// and the other node have routes to them. The place is an origin too.
func (c *cluster) addPlace(name string, node *lab.Node, addrs [2]netip.Addr) {
	c.t.Helper()
	must.NoError(c.t, node.AddInterface(name, single(addrs[ipv4]), single(addrs[ipv6])))
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
	must.NoError(c.t, from.ReplaceRoute(to, via))
}

func single(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

// pair returns addresses by family.
func pair(v4, v6 string) [2]netip.Addr {
	return [2]netip.Addr{netip.MustParseAddr(v4), netip.MustParseAddr(v6)}
}

// start starts the proxies that do not run and waits for their rules.
func (c *cluster) start() {
	c.t.Helper()
	var started []*proxy
	for _, p := range c.proxies {
		if p.process == nil {
			p.start(c.t)
			started = append(started, p)
		}
	}
	for _, p := range started {
		p.awaitRules(c.t)
	}
	if c.api != nil {
		c.settle()
	}
}

// terminate ends the running proxies.
func (c *cluster) terminate() {
	c.t.Helper()
	for _, p := range c.proxies {
		if p.process != nil {
			p.terminate(c.t)
		}
	}
}

// setFlags sets the flags of the next start.
func (c *cluster) setFlags(flags ...string) {
	for _, p := range c.proxies {
		p.flags = flags
	}
}

// kill kills the running proxies.
func (c *cluster) kill() {
	for _, p := range c.proxies {
		if p.process != nil {
			p.kill()
		}
	}
}

// write writes a manifest of both proxies, with one rename for each, or its
// objects to the API server.
func (c *cluster) write(name, text string) {
	c.t.Helper()
	if c.api != nil {
		must.NoError(c.t, c.api.write(c.t.Context(), name, text))
		return
	}
	for _, p := range c.proxies {
		writeManifest(c.t, p.dir, name, text)
	}
}

func writeManifest(t testing.TB, dir, name, text string) {
	t.Helper()
	temporary := filepath.Join(dir, "."+name)
	must.NoError(t, os.WriteFile(temporary, []byte(text), 0o644))
	must.NoError(t, os.Rename(temporary, filepath.Join(dir, name+".yaml")))
}

// remove removes Services and other objects, which have names such as
// servicecidr-kubernetes, and waits until they are gone.
func (c *cluster) remove(names ...string) {
	c.t.Helper()
	for _, name := range names {
		if s := c.services[name]; s != nil {
			s.Endpoints, s.applied = nil, false
			name = "service-" + name
		}
		delete(c.serviceCIDRs, name)
		if c.api != nil {
			c.write(name, "")
			continue
		}
		for _, p := range c.proxies {
			must.NoError(c.t, os.Remove(filepath.Join(p.dir, name+".yaml")))
		}
	}
	c.settle()
}

// apply writes the objects of YAML documents, without waiting. Documents
// without a kind are Services.
func (c *cluster) apply(text string) (applied []*service) {
	c.t.Helper()
	for document := range strings.SplitSeq(text, "---\n") {
		var object struct {
			metav1.PartialObjectMetadata `json:",inline"`
			Spec                         struct{ CIDRs []string }
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			c.t.Fatalf("%v in\n%s", err, document)
		}
		if object.Kind != "" {
			name := strings.ToLower(object.Kind) + "-" + object.Name
			c.serviceCIDRs[name] = object.Spec.CIDRs
			c.write(name, document)
			continue
		}
		s := c.parse(document)
		applied = append(applied, s)
		c.put(s)
	}
	return applied
}

// put writes a Service and its EndpointSlices.
func (c *cluster) put(s *service) {
	c.t.Helper()
	c.services[s.Name], s.applied = s, true
	c.write("service-"+s.Name, c.manifest(s))
}

// serve applies a Service and waits until it is in effect.
func (c *cluster) serve(text string) *service {
	c.t.Helper()
	applied := c.apply(text)
	c.settle()
	return applied[0]
}

// setEndpoints replaces the endpoints of Services, and waits until these are in
// effect.
func (c *cluster) setEndpoints(endpoints string, names ...string) {
	c.t.Helper()
	for _, name := range names {
		s := c.service(name)
		s.Endpoints = &endpoints
		c.put(s)
	}
	c.settle()
}

// service returns an applied Service.
func (c *cluster) service(name string) *service {
	c.t.Helper()
	s := c.services[name]
	if s == nil {
		c.t.Fatalf("unknown Service %q", name)
	}
	return s
}

// settle waits until all written manifests are in effect.
//
// It changes the port and the endpoint of the marker service and connects to
// it from both nodes and in both families. A proxy reads earlier manifests, or
// earlier changes in the API, with the marker or before it, but may write their
// rules after the marker's. A second change of the marker is read only after
// the rules of the first reading are written.
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
		if p.process == nil {
			continue
		}
		for _, f := range bothFamilies() {
			to := netip.AddrPortFrom(lab.AddrIn(lab.ServiceRanges()[f], markerNumber), c.mark)
			eventually(c.t, fmt.Sprintf("manifests in effect on %s", p.node), func() error {
				result := lab.Probe(c.t.Context(), p.at, "tcp", to, lab.ProbeOptions{Timeout: answerTimeout})
				if result.Outcome != lab.Answered || result.Answer.Server != c.markerPod() {
					return fmt.Errorf("marker %v: got %v, want %s", to, result, c.markerPod())
				}
				return nil
			})
		}
	}
}

// markerNumber is the number of the marker service. The Service kubernetes of
// an API server has the first one.
const markerNumber = 9

// markerPods returns the endpoints of the marker service, which change in turn:
// proxies watch Services and EndpointSlices separately.
func markerPods() [2]string { return [2]string{"pod1", "pod2"} }

func (c *cluster) markerPod() string { return markerPods()[c.mark%2] }

func (c *cluster) writeMarker() {
	c.t.Helper()
	if c.mark == 0 {
		c.mark = 1
	}
	c.put(c.parse(fmt.Sprintf("{name: marker, number: %d, protocols: TCP, endpoints: %s, "+
		"spec: {ports: [{name: mark, port: %d, targetPort: %d}]}}", markerNumber, c.markerPod(), c.mark, markerTarget)))
}

// writeNode writes the Node of a node.
func (c *cluster) writeNode(node *lab.Node, labels map[string]string) {
	c.t.Helper()
	object := corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: labels},
		Spec:       corev1.NodeSpec{PodCIDRs: []string{node.PodRanges[ipv4].String(), node.PodRanges[ipv6].String()}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: node.Name},
			{Type: corev1.NodeInternalIP, Address: node.IPv4.String()},
			{Type: corev1.NodeInternalIP, Address: node.IPv6.String()},
		}},
	}
	text, err := yaml.Marshal(object)
	must.NoError(c.t, err)
	c.labels[node.Name] = labels
	c.write("node-"+node.Name, string(text))
}
