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

// TestUnchanged shows that the tables are not written after changes without
// effect, and after a full list from an API server whose etcd was compacted.
// Then one Service changes: only its rows are written. kube-proxy sometimes
// rewrites all rules.
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
	p.awaitChange(func() {
		const note, label = `"annotations": {"test.example/note": "new"}`, `"labels": {"test.example/label": "new"}`
		steady.annotate(`{"metadata": {` + note + `, ` + label + `}}`)
		w.patchNode(`{"metadata": {"annotations": {"test.example/note": "new"}}}`)
	})

	// Other objects change and etcd is compacted, so that the proxy's
	// resource version is too old for a watch.
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
	// A sync for the list, and a check of the tables, would happen in this
	// time.
	time.Sleep(3 * time.Second)
	if written := monitor.written(); written != "" {
		t.Errorf("got changes of the tables, want none:\n%s", written)
	}

	changing.setEndpoints("a1 b2")
	changing.servedBy("a1 b2")
	text := monitor.written()
	if text == "" {
		t.Error("got no changes of the tables, want some")
	}
	const families, transactions = 2, 2 // additions, and perhaps removals
	if n := strings.Count(text, "new generation"); n > families*transactions {
		t.Errorf("got %d transactions for a change of one Service, want at most %d:\n%s", n, families*transactions,
			text)
	}
	for line := range strings.Lines(text) {
		b2 := strings.Contains(line, w.pods["b2"].IPv4.String()) || strings.Contains(line, w.pods["b2"].IPv6.String())
		if strings.Contains(line, "element") && !changing.mentioned(line) && !b2 {
			t.Errorf("unneeded change: %s", line)
		}
	}
}

// mentioned reports whether a row has an address or a NodePort of the
// Service.
func (s *service) mentioned(row string) bool {
	for _, d := range append(s.clusterIPs(), s.nodePorts()...) {
		nodePort := d.To.Port() != port && strings.Contains(row, fmt.Sprintf(" %d ", d.To.Port()))
		if nodePort || strings.Contains(row, d.To.Addr().String()+" ") {
			return true
		}
	}
	return false
}

// annotate patches the Service and its EndpointSlices.
func (s *service) annotate(patch string) {
	s.w.t.Helper()
	w, options := s.w, metav1.PatchOptions{}
	_, err := w.client.CoreV1().Services(s.Namespace).Patch(w.ctx(), s.Name, types.MergePatchType, []byte(patch),
		options)
	w.must(err)
	slices := w.client.DiscoveryV1().EndpointSlices(s.Namespace)
	for f := range w.Node1.Addrs() {
		_, err := slices.Patch(w.ctx(), s.sliceName(f), types.MergePatchType, []byte(patch), options)
		w.must(err)
	}
}

// awaitChange makes changes of a Service and waits until the proxy has
// counted them.
func (p *proxy) awaitChange(change func()) {
	p.t.Helper()
	const changes = "kubeproxy_sync_proxy_rules_service_changes_total"
	before := p.metric(changes)
	change()
	p.eventually("change of a Service", func() error {
		if p.metric(changes) <= before {
			return fmt.Errorf("%s: got %g, want more", changes, before)
		}
		return nil
	})
}

// TestEndpointMoves shows that clients with session affinity keep their
// endpoints when these move to other EndpointSlices.
func TestEndpointMoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := "a1 a2 b1 b2"
	sticky := w.createService("sticky", all, func(s *corev1.Service) {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	})
	w.subject().startSynced()
	chosen := sticky.chosen()

	moved := func(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
		s.Name += "-moved"
		return s
	}
	for f := range w.Node1.Addrs() { // first both slices have them
		w.writeSlice(moved(sticky.newSlice(f, strings.Fields(all))))
	}
	sticky.stay(chosen)
	for f := range w.Node1.Addrs() {
		sticky.deleteSlice(f)
	}
	time.Sleep(time.Second) // a sync would happen in this time
	sticky.stay(chosen)
}

// choice is the endpoint of a client.
type choice struct {
	route
	pod string
}

// chosen connects from several clients and returns their endpoints.
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

// stay checks that clients have the same endpoints.
func (s *service) stay(chosen []choice) {
	s.w.t.Helper()
	for range 3 {
		for _, c := range chosen {
			if pod, err := c.ask(); err != nil || pod != c.pod {
				s.w.t.Errorf("%s -> %v: got %s (%v), want %s", c.from.Name, c.to, pod, err, c.pod)
			}
		}
	}
}
