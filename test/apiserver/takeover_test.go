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

// otherProgram returns the program that TestTakeover swaps with the subject:
// the one of the environment variable OTHER, or kube-proxy.
func otherProgram() string {
	if path := os.Getenv("OTHER"); path != "" {
		return path
	}
	return upstream
}

// TestTakeover replaces one proxy by another on the same node, in both
// directions, while clients connect.
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
	current := s.proxy(other)
	current.startSynced()
	s.steady.servedBy("a1 a2 b1")
	stream := w.startStream(t, s.routes()...)
	for i, name := range []string{subjectName(), other, subjectName(), other} {
		stream.phase("%s -> %s", current.name, name)
		stream.pass(*attempts)
		end(current)
		stream.pass(*attempts) // without a proxy
		current = s.proxy(name)
		current.startSynced()
		s.followsChanges(current, i)
		stream.pass(*attempts)
		if name == product && current.metric("nftproxy_service_connections_total") == 0 {
			t.Error("nftproxy counted no connections to Services")
		}
		current.mustNotHaveFailed()
	}
	stream.mustNotFail()
}

// swapped are Services that are served while the proxy is swapped.
type swapped struct {
	w *world
	// These are the destinations of the stream. Their endpoints do not
	// change: a proxy deletes UDP flows to a removed endpoint from connection
	// tracking, and their answers are lost.
	steady, steadyLocal, guarded *service
	// These change.
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
	for i := range 50 { // more rows to write
		w.createService(fmt.Sprintf("other-%d", i), "a1 a2 b1 b2")
	}
	return s
}

// proxy returns a proxy. nftproxy has all sets that it can have.
func (s *swapped) proxy(name string) *proxy {
	if name == product {
		return s.w.proxy(name, "--service-metrics=all")
	}
	return s.w.proxy(name)
}

// routes returns the routes to the Services that do not change.
func (s *swapped) routes() []route {
	w := s.w
	routes := s.steady.routes()
	for _, to := range s.steadyLocal.clusterIPs() {
		routes = append(routes, route{from: w.pods["a1"].Namespace, to: to})
	}
	for _, to := range slices.Concat(s.steadyLocal.loadBalancerIPs(), s.steadyLocal.nodePorts()) {
		routes = append(routes, route{from: w.Client, to: to})
	}
	for _, to := range s.guarded.loadBalancerIPs() {
		routes = append(routes,
			route{from: w.Client, to: to},
			route{from: w.pods["a1"].Namespace, to: to, guarded: true})
	}
	return routes
}

// followsChanges changes endpoints and waits until the proxy serves the new
// ones, with session affinity and traffic policy. n is the number of earlier
// swaps.
func (s *swapped) followsChanges(current *proxy, n int) {
	w := s.w
	w.t.Helper()
	if current.name == upstream {
		// Its next sync after this time deletes stale chains.
		time.Sleep(time.Second)
	}
	endpoints := []string{"b1", "a2 b2", "a1", "b2"}[n]
	s.changing.setEndpoints(endpoints)
	s.changing.servedBy(endpoints)

	local := []string{"a2", "a1", "a2", "a1"}[n]
	s.changingLocal.setEndpoints(local + " b1 b2")
	external := slices.Concat(s.changingLocal.loadBalancerIPs(), s.changingLocal.nodePorts())
	w.reaches(w.Client, external, local)
	for _, from := range []*lab.Namespace{w.pods["a1"].Namespace, w.Node1.Namespace} {
		for _, to := range slices.Concat(s.changingLocal.clusterIPs(), s.changingLocal.loadBalancerIPs()) {
			route{from: from, to: to}.sticks(w.t, local, "b1", "b2")
		}
	}
}

// sticks connects several times. One of the pods must give all answers.
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
		t.Errorf("%s -> %v: got answers of %v, want answers of one of %v", r.from.Name, r.to, answered, pods)
	}
}

// mustNotHaveFailed reports errors in the log of the running process, and
// failed transactions in its metrics.
func (p *proxy) mustNotHaveFailed() {
	p.t.Helper()
	for _, text := range logErrors.FindAllString(p.process.Log(), -1) {
		p.t.Errorf("log of %s: %s", p.name, text)
	}
	for _, metric := range []string{
		"kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
		"kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
	} {
		if n := p.metric(metric); n != 0 {
			p.t.Errorf("%s of %s: got %g, want 0", metric, p.name, n)
		}
	}
}

// logErrors matches the errors in a klog log, with their indented lines.
var logErrors = regexp.MustCompile(`(?m)^E\d{4} .*\n([\t ].*\n)*`)
