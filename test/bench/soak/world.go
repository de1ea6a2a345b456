package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/bench/stage"
	"github.com/nftproxy/nftproxy/test/cluster/objects"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/random"
)

// world is a cluster with two nodes, each with a proxy. The proxy of the first
// node is killed and replaced; the second node keeps its process.
type world struct {
	*stage.Stage
	soak  *soak
	dir   string               // of logs
	say   func(string, ...any) // prints progress
	api   *objects.API
	nodes []*node
	pods  map[string][2]netip.Addr // endpoints
	// endpoints are the pods of these names.
	endpoints map[string]*lab.Pod
	history   *history
	judge     *judge
	steady    []*steady

	mu       sync.Mutex
	problems []string
	windows  []*window
}

// newWorld creates the world, with servers and Services that do not change. No
// proxy runs yet.
func (s *soak) newWorld(ctx context.Context, say func(string, ...any)) (w *world, err error) {
	w = &world{soak: s, say: say, history: &history{objects: map[string]map[string]versions{}}}
	if w.Stage, err = stage.New(ctx, s.programs); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.dir, err = filepath.Abs(cmp.Or(s.logs, filepath.Join(w.Dir, "logs"))); err != nil {
		return w, err
	}
	w.api = &objects.API{Client: w.Client, Record: w.history.record}
	if w.endpoints, w.pods, err = random.AddPods(w.Lab); err != nil {
		return w, err
	}
	names := map[netip.Addr]string{}
	for name, addrs := range w.pods {
		names[addrs[0]], names[addrs[1]] = name, name
	}
	w.judge = &judge{w.history, names}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hostileName}}
	_, err = w.Client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	err = errors.Join(err, os.MkdirAll(w.dir, 0o755), w.api.CreateServiceCIDR(ctx))
	for i, prefix := range random.SecondServiceRanges() {
		err = errors.Join(err, w.Lab.Client.ReplaceRoute(prefix, w.Lab.Node1.Addrs()[i]))
	}
	for i, n := range w.Lab.Nodes() {
		err = errors.Join(err, w.addNode(ctx, i, n))
	}
	if err != nil {
		return w, err
	}
	return w, w.createSteady(ctx)
}

func (w *world) addNode(ctx context.Context, i int, n *lab.Node) error {
	client, err := n.AddPod(fmt.Sprintf("pod%d", i+1))
	if err != nil {
		return err
	}
	if err := forgetConnections(n.Namespace); err != nil {
		return err
	}
	pods := [][2]string{{"a1", "a2"}, {"b1", "b2"}}[i]
	added := &node{
		Node: n, client: client, world: w,
		sentinel: &objects.Sentinel{API: w.api, Number: i + 1, Pods: pods, Addrs: w.pods},
	}
	w.nodes = append(w.nodes, added)
	return errors.Join(
		w.Cluster.CreateNode(ctx, n.Namespace, n.PodRanges...), added.configure(w.configuration(added, 0)))
}

// forgetConnections shortens the timeouts of connection tracking. Sources reuse
// a port after about two minutes. The entry of a connection that a fault cut
// off, or did not translate, must not exist then.
func forgetConnections(at *lab.Namespace) error {
	seconds := map[string]string{
		"syn_sent": "30", "syn_recv": "30", "established": "50", "fin_wait": "30", "close_wait": "30",
		"last_ack": "30", "time_wait": "5", "max_retrans": "30", "unacknowledged": "30",
	}
	for state, timeout := range seconds {
		if err := at.SetSysctl("net.netfilter.nf_conntrack_tcp_timeout_"+state, timeout); err != nil {
			return err
		}
	}
	return nil
}

// close ends everything, and keeps the logs of the API server.
func (w *world) close() error {
	for _, n := range w.nodes {
		if n.process != nil {
			n.process.MayEnd()
		}
	}
	var errs []error
	for _, name := range []string{"kube-apiserver-6443.log", "etcd.log"} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(w.Cluster.AdminKubeconfig()), name))
		errs = append(errs, err, os.WriteFile(filepath.Join(w.dir, name), text, 0o600))
	}
	return errors.Join(append(errs, w.Stage.Close())...)
}

// configuration returns one of the configurations of a proxy. Connections to
// the steady Services succeed with each of them.
func (w *world) configuration(n *node, variant int) string {
	lines := append(variants()[variant%len(variants())], "enableProfiling: true",
		`nodePortAddresses: ["172.30.0.0/24", "fd00:30::/64"]`)
	return w.Cluster.Configuration("nftables", n.Name, lines...)
}

func variants() [][]string {
	clusterCIDR := fmt.Sprintf("clusterCIDR: %s,%s", lab.PodRanges()[0], lab.PodRanges()[1])
	return [][]string{
		{clusterCIDR},
		{clusterCIDR, "nftables: {masqueradeAll: true}"},
		{clusterCIDR, "nftables: {minSyncPeriod: 50ms}"},
		{"detectLocalMode: NodeCIDR"},
		{"detectLocalMode: InterfaceNamePrefix", "detectLocal: {interfaceNamePrefix: veth}"},
	}
}

// problem adds a problem, which makes the run fail.
func (w *world) problem(format string, args ...any) {
	const most = 100 // are printed
	w.mu.Lock()
	defer w.mu.Unlock()
	text := time.Now().Format(time.TimeOnly) + " " + fmt.Sprintf(format, args...)
	if w.problems = append(w.problems, text); len(w.problems) <= most {
		w.say("PROBLEM: "+format, args...)
	}
}

// window is a time in which connections through a node can fail, because a
// fault damaged its rules, or in which session affinity can be lost.
type window struct {
	kind     string
	node     *node
	from, to time.Time // to is zero while the window is open
	// affinity restricts the window to clients with session affinity. Otherwise
	// it applies to packets through the rules of the node, or to all packets.
	affinity, all bool
	family        nft.Family // restricts it to packets of a family, unless 0
	endpoint      string     // restricts it to Services with the endpoint, unless empty
	excused       int        // connections
}

// open opens a window, from now on unless it began earlier.
func (w *world) open(one window) *window {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one.from.IsZero() {
		one.from = time.Now()
	}
	w.windows = append(w.windows, &one)
	return &one
}

// watchStalls adds a window for each time in which this process, which has
// clients and servers, did not run. Attempts of a moment before wait for their
// answer, too.
func (w *world) watchStalls(ctx context.Context) error {
	const period, most, margin = 20 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second
	for before := time.Now(); lab.Sleep(ctx, period); before = time.Now() {
		if time.Since(before) > most {
			from := before.Add(-margin)
			w.shut(w.open(window{kind: "machine stalled", node: w.nodes[0], all: true, from: from}))
		}
	}
	return nil
}

// shut closes a window.
func (w *world) shut(one *window) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one.to = time.Now()
}

// overlaps reports whether a time is partly in the window.
func (one *window) overlaps(from, end time.Time) bool {
	return (one.to.IsZero() || from.Before(one.to)) && end.After(one.from)
}

// swapped reports whether kube-proxy ran on a node in a time.
func (w *world) swapped(n *node, from, end time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.windows, func(one *window) bool {
		return one.kind == swap && one.node == n && one.overlaps(from, end)
	})
}

// excuse returns the window that explains a failure, or nil. It is called after
// all windows are closed.
func (w *world) excuse(f failure) *window {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.windows {
		if (one.all || one.node == f.via) && (f.affinity || !one.affinity) &&
			(one.family == 0 || one.family.Of(f.to.Addr())) && one.overlaps(f.from, f.end) &&
			(one.endpoint == "" || w.judge.mayReach(f, one.endpoint)) {
			one.excused++
			return one
		}
	}
	return nil
}

// patience is the longest time in which a proxy must follow the API or repair
// its tables.
const patience = 2 * time.Minute

// requestTimeout limits requests to the API server, so that they are repeated.
const requestTimeout = 20 * time.Second

// node is a node with a proxy.
type node struct {
	*lab.Node
	client   *lab.Pod // in which connections begin
	sentinel *objects.Sentinel
	world    *world
	config   string       // of the proxy
	process  *lab.Process // nil before the first start

	still   sync.Mutex   // held while the sentinel changes
	writing atomic.Int64 // time of all requests that changed it, in nanoseconds

	mu      sync.Mutex // guards the rest
	known   []confirmation
	latency report.Sample // from the answer of the API to its effect on connections
}

// confirmation is a time at which a node has followed all requests that were
// answered before an earlier time.
type confirmation struct{ at, known time.Time }

// has reports whether an address belongs to the node or to one of its pods.
func (n *node) has(addr netip.Addr) bool {
	in := func(p netip.Prefix) bool { return p.Contains(addr) }
	return slices.Contains(n.Addrs(), addr) || slices.ContainsFunc(n.PodRanges, in)
}

// file returns a file of the node.
func (n *node) file(name string) string { return filepath.Join(n.world.dir, n.Name+name) }

// configure writes the configuration file of the proxy.
func (n *node) configure(config string) error {
	n.config = config
	return os.WriteFile(n.file(".conf"), []byte(config), 0o600)
}

// run runs a program with the configuration of the proxy.
func (n *node) run(at *lab.Namespace, program, log string, ended func(error)) (*lab.Process, error) {
	args := []string{"--config=" + n.file(".conf")}
	if soak := n.world.soak; soak.resetStale && program == soak.programs.Product {
		args = append(args, "--reset-stale-connections")
	}
	return at.StartProcess(context.Background(), lab.ProcessConfig{
		Program: program, Args: args, Log: n.file(log), Ended: ended,
	})
}

// replace ends the proxy with a signal, and starts another one.
func (n *node) replace(signal syscall.Signal, program string) error {
	n.process.End(signal)
	return n.start(program)
}

// start starts a proxy.
func (n *node) start(program string) (err error) {
	n.process, err = n.run(n.Namespace, program, ".log", func(err error) {
		n.world.problem("the proxy of %s ended: %v", n.Name, err)
	})
	return err
}

const poll = 10 * time.Millisecond

// follow changes the sentinel of the node until ctx ends, and records when the
// proxy has followed.
func (n *node) follow(ctx context.Context) error {
	for pause := poll; lab.Sleep(ctx, pause); {
		answered, err := n.followOnce(ctx)
		if err != nil {
			return err
		}
		if pause = poll; answered {
			pause = time.Second
		}
	}
	return nil
}

// followOnce changes the sentinel twice, and waits until the proxy has followed
// each change. It reports whether the API server answered.
func (n *node) followOnce(ctx context.Context) (answered bool, err error) {
	n.still.Lock()
	defer n.still.Unlock()
	began := time.Now()
	for range 2 { // see objects.Sentinel
		if answered, err := n.followChange(ctx); !answered || err != nil {
			return answered, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known = append(n.known, confirmation{time.Now(), began})
	return true, nil
}

// followChange changes the sentinel once and waits until the proxy has
// followed.
func (n *node) followChange(ctx context.Context) (answered bool, err error) {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	mark, err := n.sentinel.Change(limited)
	if err != nil {
		return false, nil
	}
	from := time.Now()
	n.writing.Add(int64(from.Sub(began)))
	for mark.Served(ctx, n.Namespace) != nil && lab.Sleep(ctx, poll) {
		if time.Since(from) > patience {
			return true, fmt.Errorf("the proxy of %s has not followed the API for %s", n.Name, patience)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.latency.Add(time.Since(from))
	return true, nil
}

// knownAt returns the time up to which the proxy had followed at another time.
func (n *node) knownAt(at time.Time) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range slices.Backward(n.known) {
		if c.at.Before(at) {
			return c.known
		}
	}
	return time.Time{}
}

// await waits until the proxy has followed a change of the sentinel that began
// after now, and returns how long it took, without the requests.
func (n *node) await(ctx context.Context) (time.Duration, error) {
	const limit = 5 * patience
	from, before := time.Now(), n.writing.Load()
	if err := wait.PollUntilContextTimeout(ctx, poll, limit, false, n.followOnce); err != nil {
		return 0, fmt.Errorf("changes for %s have not ended after %s: %w", n.Name, limit, err)
	}
	return max(0, time.Since(from)-time.Duration(n.writing.Load()-before)), nil
}

// possible returns what the node can be, as far as endpoints depend on it. The
// sentinel does not show when a proxy follows changes of its Node.
func (n *node) possible(endpoints []*cluster.Endpoint) (all []*cluster.Node) {
	for _, zone := range []string{"", "east", "west"} {
		all = append(all, &cluster.Node{
			Name: n.Name, Zone: zone, IPs: n.Addrs(),
			ServiceCIDRs: slices.Concat(lab.ServiceRanges(), random.SecondServiceRanges()),
		})
	}
	if !slices.ContainsFunc(endpoints, func(e *cluster.Endpoint) bool { return e.Hints != nil }) {
		all = all[:1]
	}
	return all
}
