// Deadendpoints measures what clients see when endpoints of a Service die, with
// kube-proxy and with nftproxy. The API never changes: Kubernetes notices the
// death of a node after 50 seconds.
//
//	client ── node ── 10 endpoints      each a network namespace
//	            │ rules
//	            └ connects, too
//
// Clients on the node connect to the ClusterIP over IPv4 and IPv6 in turn, and
// clients behind it to the NodePort over IPv4, with a limit of 10 s. Others ask
// questions over UDP to port 53, as glibc does: the second question is from the
// same socket, 5 s after the first one. A dead endpoint receives packets and
// its answers are lost. In each phase, clients connect for 5 s before the
// fault, and are counted from then on. A phase ends with the repair, and a
// pause. Then the CPU time of the proxy is measured while nothing happens, and
// what clients see of the next faults (see quiet).
//
// With --to, the program only connects to these targets, from the network
// namespace in which it runs: for a cluster whose faults somebody else makes.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/bench/stage"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/random"
)

const about = `deadendpoints measures the connects that fail or are slow when endpoints of a Service die, and the CPU
time of a proxy on an idle node. It needs root.
With --to, it only connects to these targets, from the network namespace in which it runs.`

const (
	name      = "web" // of the Service
	endpoints = 10
	nodePort  = 30080
	before    = 5 * time.Second // time of a fault in its phase
)

var (
	clientAddr = netip.MustParseAddr("192.0.2.2")
	everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
)

func main() { report.Main("deadendpoints", about, &bench{programs: stage.InRepository(".")}) }

// bench is the benchmark.
type bench struct {
	programs stage.Programs
	proxies  []string
	to       []string
	rate     int
	duration time.Duration
	dead     []int // endpoints, in each phase
	// See quiet.
	idle, settle                   time.Duration
	connections, quietRate, faults int
	floods                         []int
}

// AddFlags implements report.Benchmark.
func (b *bench) AddFlags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&b.proxies, "subjects", []string{stage.Upstream, stage.Product}, "Proxies to measure.")
	flags.StringSliceVar(&b.to, "to", nil, "Only connect to these targets: tcp://ADDRESS:PORT, udp://ADDRESS:PORT.")
	flags.IntVar(&b.rate, "rate", 100, "Connects per second of each kind of clients.")
	flags.DurationVar(&b.duration, "duration", 30*time.Second, "Length of a phase.")
	flags.IntSliceVar(&b.dead, "dead", []int{0, 1, 3, 9, endpoints}, "Numbers of dead endpoints, one for each phase.")
	flags.DurationVar(&b.idle, "idle", time.Minute, "Time for which an idle proxy is measured, 0 for none.")
	flags.DurationVar(&b.settle, "settle", 75*time.Second, "Time without any event after which a proxy is idle.")
	flags.IntVar(&b.connections, "connections", 100_000, "Tracked connections of an idle node, at most 120,000.")
	flags.IntVar(&b.faults, "faults", 3, "Faults of each kind that follow the first one of an idle node.")
	flags.IntSliceVar(&b.floods, "floods", []int{20_000, 200_000},
		"Unanswered attempts of another Service beside which an endpoint dies, at most 400,000.")
	flags.IntVar(&b.quietRate, "quiet-rate", 300, "Connects per second during the faults of an idle node.")
}

// Measure implements report.Benchmark.
func (b *bench) Measure(ctx context.Context, r *report.Report) (err error) {
	isWrong := func(dead int) bool { return dead < 0 || dead > endpoints }
	if b.rate < 1 || b.quietRate < 1 || b.duration <= 0 || slices.ContainsFunc(b.dead, isWrong) {
		return fmt.Errorf("want a positive rate and duration, and at most %d dead endpoints", endpoints)
	}
	if len(b.to) > 0 {
		return b.connect(ctx, r)
	}
	if r.Versions, err = b.programs.Versions(b.proxies); err != nil {
		return err
	}
	s, err := stage.New(ctx, b.programs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	w, err := newWorld(ctx, s)
	if err != nil {
		return err
	}
	for _, proxy := range b.proxies {
		if err := b.measure(ctx, r, w, proxy); err != nil {
			return fmt.Errorf("%s: %w", proxy, err)
		}
	}
	return context.Cause(ctx)
}

// connect connects to the targets of the command line.
func (b *bench) connect(ctx context.Context, r *report.Report) error {
	var targets []target
	for _, text := range b.to {
		to, err := parseTarget(text)
		if err != nil {
			return err
		}
		targets = append(targets, to)
	}
	f := newFates()
	f.connect(ctx, new(net.Dialer).DialContext, targets, b.rate, time.Now(), b.duration)
	r.AddRow(strings.Join(b.to, ", "), f.figures()...)
	return nil
}

// world is a Service with endpoints, and clients. Its node is that of the proxy
// that is measured.
type world struct {
	stage     *stage.Stage
	endpoints []*lab.Pod
	clusterIP []netip.Addr
}

func newWorld(ctx context.Context, s *stage.Stage) (*world, error) {
	w := &world{stage: s}
	for i := range endpoints {
		pod, err := s.Lab.Node2.AddPod(fmt.Sprintf("endpoint%d", i))
		if err != nil {
			return w, err
		}
		w.endpoints = append(w.endpoints, pod)
		if err := pod.Serve(stage.TargetPort); err != nil {
			return w, err
		}
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}}
	service.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack),
		Ports: []corev1.ServicePort{
			{Name: "http", Port: 80, NodePort: nodePort, TargetPort: intstr.FromInt32(stage.TargetPort)},
			{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(stage.TargetPort)},
		},
	}
	service, err := s.Services().Create(ctx, service, metav1.CreateOptions{})
	if err != nil {
		return w, err
	}
	for _, ip := range service.Spec.ClusterIPs {
		w.clusterIP = append(w.clusterIP, netip.MustParseAddr(ip))
	}
	if err := w.addFlood(ctx, s); err != nil {
		return w, err
	}
	_, errIPv4 := s.Slices().Create(ctx, w.slice(0), metav1.CreateOptions{})
	_, errIPv6 := s.Slices().Create(ctx, w.slice(1), metav1.CreateOptions{})
	return w, errors.Join(errIPv4, errIPv6)
}

// slice returns the EndpointSlice of a family, 0 for IPv4.
func (w *world) slice(f int) *discoveryv1.EndpointSlice {
	slice := random.NewSlice(name, fmt.Sprintf("%s-%d", name, f), f)
	slice.Namespace = stage.NamespaceName
	slice.Ports = []discoveryv1.EndpointPort{
		{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](stage.TargetPort)},
		{Name: ptr.To("dns"), Protocol: ptr.To(corev1.ProtocolUDP), Port: ptr.To[int32](stage.TargetPort)},
	}
	for _, pod := range w.endpoints {
		random.AddEndpoint(slice, pod.Addrs()[f]).Conditions.Ready = ptr.To(true)
	}
	return slice
}

// measure measures all phases with a proxy.
func (b *bench) measure(ctx context.Context, r *report.Report, w *world, proxy string) (err error) {
	node, err := w.stage.NewNode(ctx, proxy)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Remove()) }()
	client, err := w.addClient(node)
	if err != nil {
		return err
	}
	if err := node.Start(ctx); err != nil {
		return err
	}
	if _, err := node.AwaitProgrammed([]netip.AddrPort{netip.AddrPortFrom(w.clusterIP[0], 80)}); err != nil {
		return err
	}
	sources := w.sources(node.Pod.Namespace, client)
	pause := min(b.duration, 15*time.Second) // until ejections have ended
	for _, dead := range b.dead {
		var clients sync.WaitGroup
		all, fault := make([]*fates, len(sources)), time.Now().Add(before)
		for i, from := range sources {
			all[i] = newFates()
			clients.Go(func() { all[i].connect(ctx, from.dial, from.to, b.rate, fault, b.duration) })
		}
		lab.Sleep(ctx, time.Until(fault))
		err := w.route(dead, (*lab.Namespace).Blackhole)
		if clients.Wait(); err != nil {
			return err
		}
		for i, from := range sources {
			title := fmt.Sprintf("%d of %d endpoints dead", dead, endpoints)
			r.AddRow(title, append([]report.Figure{report.Label("proxy", proxy), report.Label("clients", from.name)},
				all[i].figures()...)...)
		}
		if err := w.route(dead, (*lab.Namespace).RemoveRoute); err != nil {
			return err
		}
		if !lab.Sleep(ctx, pause) {
			return context.Cause(ctx)
		}
	}
	return b.quiet(ctx, r, w, node, client)
}

// addClient adds a client whose packets all pass the node.
func (w *world) addClient(node *stage.Node) (*lab.Namespace, error) {
	client, err := lab.NewNamespace("client")
	if err != nil {
		return nil, err
	}
	client.IPv4 = clientAddr
	own := lab.HostPrefixes(clientAddr)
	return client, errors.Join(client.AddAddrTo("lo", own[0]), node.Pod.SetSysctl("net.ipv4.ip_forward", "1"),
		lab.Wire(node.Pod.Namespace, client, "to-client", "to-node", own, everywhere))
}

// source is a kind of clients.
type source struct {
	name string
	dial dialer
	to   []target
}

func (w *world) sources(node, client *lab.Namespace) []source {
	targets := func(network string, addrs []netip.Addr, port uint16) (all []target) {
		for _, addr := range addrs {
			all = append(all, target{network, netip.AddrPortFrom(addr, port)})
		}
		return all
	}
	return []source{
		{"node, TCP to the ClusterIP", node.DialContext, targets("tcp", w.clusterIP, 80)},
		{"outside, TCP to the NodePort", client.DialContext, targets("tcp", node.Addrs()[:1], nodePort)},
		{"node, UDP to port 53", node.DialContext, targets("udp", w.clusterIP, 53)},
	}
}

// route changes the routes of the first n endpoints to all clients. With
// Blackhole, these endpoints are silent until RemoveRoute.
func (w *world) route(n int, change func(*lab.Namespace, ...netip.Prefix) error) (err error) {
	for _, pod := range w.endpoints[:n] {
		err = errors.Join(err, change(pod.Namespace, w.stage.Lab.Node1.PodRanges...))
	}
	return err
}
