package apiserver

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/test/lab"
)

// otherProgram is the program that TestTakeover swaps with the subject:
// kube-proxy, or the one that OTHER in the environment names, such as an earlier
// build of nftproxy.
func otherProgram() string {
	if path := os.Getenv("OTHER"); path != "" {
		return path
	}
	return upstream
}

// TestTakeover replaces one proxy by another on the same node, there and back,
// under a steady stream of new connections.
func TestTakeover(t *testing.T) {
	t.Parallel()
	for _, end := range []struct {
		name string
		end  func(*proxy)
	}{
		{"SIGTERM", (*proxy).terminate},
		{"SIGKILL", (*proxy).kill},
	} {
		t.Run(end.name, func(t *testing.T) {
			t.Parallel()
			testTakeover(t, end.end)
		})
	}
}

func testTakeover(t *testing.T, end func(*proxy)) {
	w := newWorld(t)
	s := newSwapped(w)
	other := otherProgram()
	current := w.proxy(other)
	current.startSynced()
	s.steady.servedBy("a1 a2 b1")
	stream := w.startStream(t, s.routes()...)
	for i, name := range []string{subjectName(), other, subjectName(), other} {
		stream.phase("%s -> %s", current.name, name)
		stream.pass(*attempts)
		end(current)
		stream.pass(*attempts) // with no proxy
		current = w.proxy(name)
		current.startSynced()
		s.inCharge(current, i)
		stream.pass(*attempts)
		current.mustNotHaveFailed()
	}
	stream.mustNotFail()
}

// swapped are Services that are served while the proxy is swapped.
type swapped struct {
	w *world
	// The stream of connections goes to these. Their endpoints do not change: a UDP
	// flow to an endpoint that goes is deleted from connection tracking, and its
	// answer is lost.
	steady, steadyLocal, guarded *service
	// By these a proxy shows that it is in charge.
	changing, changingLocal *service
}

func newSwapped(w *world) *swapped {
	loadBalancer := func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer }
	local := func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	guarded := func(s *corev1.Service) {
		for _, addr := range w.Client.Addrs() {
			single := netip.PrefixFrom(addr, addr.BitLen()).String()
			s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, single)
		}
	}
	s := &swapped{
		w:             w,
		steady:        w.createService("steady", "a1 a2 b1"),
		steadyLocal:   w.createService("steady-local", "a1 a2 b1", loadBalancer, local),
		guarded:       w.createService("guarded", "a1 a2 b1", loadBalancer, guarded),
		changing:      w.createService("changing", "a1"),
		changingLocal: w.createService("changing-local", "a1 b1", loadBalancer, local),
	}
	for i, service := range []*service{s.steadyLocal, s.guarded, s.changingLocal} {
		service.setLoadBalancerIPs(i + 1)
	}
	for i := range 50 { // so that writing takes a moment
		w.createService(fmt.Sprintf("other-%d", i), "a1 a2 b1 b2")
	}
	return s
}

// routes are those of the steady Services.
func (s *swapped) routes() []route {
	w := s.w
	routes := s.steady.routes()
	for _, to := range s.steadyLocal.clusterIPs() {
		routes = append(routes, route{from: w.pods["a1"].Namespace, to: to})
	}
	for _, to := range slices.Concat(s.steadyLocal.loadBalancerIPs(), s.steadyLocal.nodePorts(w.Node1)) {
		routes = append(routes, route{from: w.Client, to: to})
	}
	for _, to := range s.guarded.loadBalancerIPs() {
		routes = append(routes,
			route{from: w.Client, to: to},
			route{from: w.pods["a1"].Namespace, to: to, guarded: true})
	}
	return routes
}

// inCharge changes endpoints and waits until the proxy serves the new ones, with
// session affinity and traffic policy. n is the number of earlier swaps.
func (s *swapped) inCharge(current *proxy, n int) {
	w := s.w
	w.t.Helper()
	if current.name == upstream {
		// It deletes stale chains in the first sync after this time.
		time.Sleep(time.Second)
	}
	endpoints := []string{"b1", "a2 b2", "a1", "b2"}[n]
	s.changing.setEndpoints(endpoints)
	s.changing.servedBy(endpoints)

	local := []string{"a2", "a1", "a2", "a1"}[n]
	s.changingLocal.setEndpoints(local + " b1 b2")
	w.reaches(w.Client, slices.Concat(s.changingLocal.loadBalancerIPs(), s.changingLocal.nodePorts(w.Node1)), local)
	for _, from := range []*lab.Namespace{w.pods["a1"].Namespace, w.Node1.Namespace} {
		for _, to := range slices.Concat(s.changingLocal.clusterIPs(), s.changingLocal.loadBalancerIPs()) {
			route{from: from, to: to}.sticks(w.t, local, "b1", "b2")
		}
	}
}

// sticks connects several times and wants the same one of the pods to answer.
func (r route) sticks(t testing.TB, pods ...string) {
	t.Helper()
	var answered []string
	for range 5 {
		pod, err := r.ask()
		if err != nil {
			t.Errorf("%s -> %v: %v", r.from.Name, r.to, err)
			return
		}
		answered = append(answered, pod)
	}
	if !slices.Contains(pods, answered[0]) || len(slices.Compact(slices.Clone(answered))) > 1 {
		t.Errorf("%s -> %v: answered by %v, want always the same one of %v", r.from.Name, r.to, answered, pods)
	}
}

// mustNotHaveFailed reports errors in the log of the process that runs, and
// transactions that failed by its metrics.
func (p *proxy) mustNotHaveFailed() {
	p.t.Helper()
	for _, text := range logErrors.FindAllString(p.log.Current(), -1) {
		p.t.Errorf("log of %s: %s", p.name, text)
	}
	for _, metric := range []string{
		"kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
		"kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
	} {
		if n := p.metric(metric); n != 0 {
			p.t.Errorf("%s: %s is %g, want 0", p.name, metric, n)
		}
	}
}

// logErrors matches the errors in a log of klog, each with the indented lines that
// belong to it.
var logErrors = regexp.MustCompile(`(?m)^E\d{4} .*\n([\t ].*\n)*`)
