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
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/apiserver/random"
	"github.com/nftproxy/nftproxy/test/bench/stage"
	"github.com/nftproxy/nftproxy/test/lab"
)

// world is a cluster with two nodes, each with a proxy. The proxy of the first
// node is killed and replaced; the second node keeps its process.
type world struct {
	*stage.Stage
	soak    *soak
	dir     string               // of logs
	say     func(string, ...any) // prints progress
	api     *random.API
	nodes   []*node
	pods    map[string][2]netip.Addr // endpoints
	history *history
	judge   *judge
	steady  []*steady

	mu       sync.Mutex
	problems []string
	windows  []*window
}

// newWorld creates the world, with servers and Services that do not change. No
// proxy runs yet.
func (s *soak) newWorld(ctx context.Context, say func(string, ...any)) (w *world, err error) {
	w = &world{soak: s, say: say, history: &history{services: map[string]*recorded{}}}
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
	w.api = &random.API{Client: w.Client, Record: w.history.record}
	if _, w.pods, err = random.AddPods(w.Lab); err != nil {
		return w, err
	}
	names := map[netip.Addr]string{}
	for name, addrs := range w.pods {
		names[addrs[0]], names[addrs[1]] = name, name
	}
	if w.judge, err = newJudge(w.history, names); err != nil {
		return w, err
	}
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
	// The entries of closed connections would stay for two minutes. The kernel
	// may not have the parameter before the first rule.
	err = n.SetSysctl("net.netfilter.nf_conntrack_tcp_timeout_time_wait", "5")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	pods := [][2]string{{"a1", "a2"}, {"b1", "b2"}}[i]
	added := &node{
		Node: n, client: client, dir: w.dir,
		sentinel: &random.Sentinel{API: w.api, Number: i + 1, Pods: pods, Addrs: w.pods},
		problem:  w.problem,
	}
	w.nodes = append(w.nodes, added)
	return errors.Join(
		w.Cluster.CreateNode(ctx, n.Namespace, n.PodRanges...), added.configure(w.configuration(added, 0)))
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
	excused       int        // connections
}

// open opens a window.
func (w *world) open(one window) *window {
	w.mu.Lock()
	defer w.mu.Unlock()
	one.from = time.Now()
	w.windows = append(w.windows, &one)
	return &one
}

// watchStalls adds a window for each time in which this process, which has
// clients and servers, did not run. Attempts of a moment before wait for their
// answer, too.
func (w *world) watchStalls(ctx context.Context) error {
	const period, most, margin = 20 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second
	for before := time.Now(); sleep(ctx, period); before = time.Now() {
		if time.Since(before) > most {
			stall := w.open(window{kind: "machine stalled", node: w.nodes[0], all: true})
			w.mu.Lock()
			stall.from, stall.to = before.Add(-margin), time.Now()
			w.mu.Unlock()
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
			(one.family == 0 || one.family.Of(f.to.Addr())) && one.overlaps(f.from, f.end) {
			one.excused++
			return one
		}
	}
	return nil
}
