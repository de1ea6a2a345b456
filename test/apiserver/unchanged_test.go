package apiserver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestUnchanged changes what no packet depends on, and has all objects told once more by an API server that has forgotten what they were: nothing
// must be written to the tables. After that one Service changes, and no row of another one. kube-proxy writes all rules anew now and then.
func TestUnchanged(t *testing.T) {
	t.Parallel()
	if subjectName() != product {
		return
	}
	w := newWorld(t)
	steady := w.createService("steady", "a1 a2 b1")
	changing := w.createService("changing", "a1 b1")
	for i := range 20 {
		w.createService(fmt.Sprintf("other-%d", i), "a2 b2")
	}
	p := w.subject()
	p.startSynced()
	steady.servedBy("a1 a2 b1")
	changing.servedBy("a1 b1")
	monitor := w.monitor(w.Node1)
	p.awaitTold(func() {
		steady.annotate(`{"metadata": {"annotations": {"test.example/note": "new"}, "labels": {"test.example/label": "new"}}}`)
		w.patchNode(`{"metadata": {"annotations": {"test.example/note": "new"}}}`)
	})

	// Something else is written to etcd, so that what the proxy knows is an old state of it, and that state is forgotten.
	w.must(w.APIServer.Kill())
	other, err := w.StartAPIServer(w.ctx(), 6444)
	w.must(err)
	for i := range 3 {
		_, err := other.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(w.ctx(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("note-%d", i)},
		}, metav1.CreateOptions{})
		w.must(err)
	}
	w.must(other.Stop())
	w.must(w.Compact(w.ctx()))
	restart := time.Now()
	w.must(w.APIServer.Start(w.ctx()))
	eventually(t, "lists", func() error { return w.listed(restart, "services", "endpointslices") })
	// Longer than a sync waits for the next change, and a check of the tables.
	time.Sleep(3 * time.Second)
	if written := monitor.written(); written != "" {
		t.Errorf("written though nothing changed:\n%s", written)
	}

	changing.setEndpoints("a1 b2")
	changing.servedBy("a1 b2")
	text := monitor.written()
	if text == "" {
		t.Error("nothing was written for a change")
	}
	const families, transactions = 2, 2 // one for what is new, at most one for what is not used any more
	if n := strings.Count(text, "new generation"); n > families*transactions {
		t.Errorf("%d transactions for a change of one Service:\n%s", n, text)
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "element") && !changing.mentioned(line) && !strings.Contains(line, w.pods["b2"].IPv4.String()) && !strings.Contains(line, w.pods["b2"].IPv6.String()) {
			t.Errorf("written for another Service's change: %s", line)
		}
	}
}

// mentioned tells whether a row is about the Service's addresses or ports.
func (s *service) mentioned(row string) bool {
	for _, d := range append(s.clusterIPs(), s.nodePorts(s.w.Node1)...) {
		if strings.Contains(row, d.addr.Addr().String()+" ") || strings.Contains(row, fmt.Sprintf(" %d ", d.addr.Port())) && d.addr.Port() != port {
			return true
		}
	}
	return false
}

// annotate patches the Service and its EndpointSlices.
func (s *service) annotate(patch string) {
	s.w.t.Helper()
	_, err := s.w.Admin().CoreV1().Services(s.Namespace).Patch(s.w.ctx(), s.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.w.must(err)
	for f := range s.w.Node1.Addrs() {
		_, err := s.w.Admin().DiscoveryV1().EndpointSlices(s.Namespace).Patch(s.w.ctx(), s.sliceName(f), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		s.w.must(err)
	}
}

// awaitTold makes changes of a Service and waits until the proxy was told of them.
func (p *proxy) awaitTold(change func()) {
	p.t.Helper()
	const told = "kubeproxy_sync_proxy_rules_service_changes_total"
	before := p.metric(told)
	change()
	p.eventually("change of a Service", func() error {
		if p.metric(told) <= before {
			return fmt.Errorf("%s is %g", told, before)
		}
		return nil
	})
}

// TestEndpointMoves moves endpoints from one EndpointSlice to another one, as their controller does. Clients with session affinity stay with
// their endpoints.
func TestEndpointMoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := "a1 a2 b1 b2"
	sticky := w.createService("sticky", all, func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP })
	w.subject().startSynced()
	chosen := sticky.chosen()

	moved := func(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
		s.Name += "-moved"
		return s
	}
	for f := range w.Node1.Addrs() { // first they are in both
		w.must(writeSlice(w, w.Admin(), moved(sticky.newSlice(f, strings.Fields(all)))))
	}
	sticky.stay(chosen)
	for f := range w.Node1.Addrs() {
		w.must(w.Admin().DiscoveryV1().EndpointSlices(sticky.Namespace).Delete(w.ctx(), sticky.sliceName(f), metav1.DeleteOptions{}))
	}
	time.Sleep(time.Second) // for a proxy to do it wrong
	sticky.stay(chosen)
}

// choice is the endpoint that a client was led to.
type choice struct {
	route
	pod string
}

// chosen connects from several clients.
func (s *service) chosen() []choice {
	s.w.t.Helper()
	var out []choice
	for _, r := range s.routes() {
		eventually(s.w.t, r.from.Name, func() error {
			answer, err := r.ask()
			if err == nil {
				out = append(out, choice{r, answer})
			}
			return err
		})
	}
	return out
}

// stay wants clients to be led where they were.
func (s *service) stay(chosen []choice) {
	s.w.t.Helper()
	for range 3 {
		for _, c := range chosen {
			if pod, err := c.ask(); err != nil || pod != c.pod {
				s.w.t.Errorf("%s -> %v: %s, %v; want %s", c.from.Name, c.to, pod, err, c.pod)
			}
		}
	}
}
