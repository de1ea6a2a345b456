package apiserver

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/test/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/frontend"
)

// TestNodeMissing starts the subject before its Node object exists. It waits
// for the Node, and uses its addresses for NodePorts.
func TestNodeMissing(t *testing.T) {
	t.Parallel()
	w := newBareWorld(t)
	web := w.createService("web", "a1 b1")
	p := w.subject()
	begin := time.Now()
	p.start()
	w.awaitAnyRequest("nodes", begin)
	time.Sleep(3 * time.Second)
	p.notHealthy()
	if tables := w.tables(w.Node1); strings.Contains(tables, web.Spec.ClusterIP) {
		t.Errorf("tables without a Node: got\n%s", tables)
	}
	w.createNode(w.Node1)
	web.servedBy("a1 b1")
	p.awaitHealth()
}

// TestNoNode shows that the subject serves ClusterIPs even if no Node object
// is created.
func TestNoNode(t *testing.T) {
	t.Parallel()
	w := newBareWorld(t)
	web := w.createService("web", "a1 b1")
	w.subject().start()
	w.reaches(w.pods["a1"].Namespace, web.clusterIPs(), "a1 b1")
}

// TestNodeDeleted shows that a deleted Node object does not end the service
// of the node.
func TestNodeDeleted(t *testing.T) {
	t.Parallel()
	w, web, p := newServedWorld(t)

	// With a finalizer the Node stays, with a deletion timestamp.
	w.patchNode(`{"metadata": {"finalizers": ["test.example/hold"]}}`)
	w.must(w.Admin().CoreV1().Nodes().Delete(w.ctx(), w.Node1.Name, metav1.DeleteOptions{}))
	p.awaitStatus("/healthz", 503)
	p.awaitStatus("/livez", 200)
	web.setEndpoints("a2")
	web.servedBy("a2")

	w.patchNode(`{"metadata": {"finalizers": null}}`)
	eventually(t, "deletion of the Node", func() error {
		_, err := w.Admin().CoreV1().Nodes().Get(w.ctx(), w.Node1.Name, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("the Node exists")
		}
		return nil
	})
	web.setEndpoints("b2")
	web.servedBy("b2")

	w.createNode(w.Node1)
	p.awaitStatus("/healthz", 200)
	web.setEndpoints("b1")
	web.servedBy("b1")
	if !p.running() {
		t.Errorf("%s: %v", p.name, context.Cause(p.process.Running))
	}
}

// TestPodCIDRs shows the detection of local traffic by the podCIDRs of the
// Node, which are set late, and change when the Node is recreated.
func TestPodCIDRs(t *testing.T) {
	t.Parallel()
	w := newBareWorld(t)
	node := newNode(w.Node1)
	node.Spec.PodCIDR, node.Spec.PodCIDRs = "", nil
	w.create(node)
	web := w.createService("web", "a2") // of node1: its answers pass node1
	p := w.subject("--cluster-cidr=", "--detect-local-mode=NodeCIDR")
	begin := time.Now()
	p.start()
	w.awaitAnyRequest("nodes", begin)
	time.Sleep(3 * time.Second)
	p.notHealthy()

	const podCIDRs = `{"spec": {"podCIDR": %q, "podCIDRs": [%[1]q, %q]}}`
	w.patchNode(fmt.Sprintf(podCIDRs, w.Node1.PodRanges[0], w.Node1.PodRanges[1]))
	web.servedBy("a2")
	p.awaitHealth()
	w.seenAs(w.pods["a1"].Namespace, web, w.pods["a1"].Addrs())
	w.seenAs(w.Client, web, w.Node1.Addrs())

	w.must(w.Admin().CoreV1().Nodes().Delete(w.ctx(), w.Node1.Name, metav1.DeleteOptions{}))
	node = newNode(w.Node1)
	node.Spec.PodCIDRs = []string{w.Client.IPv4.String() + "/32", w.Client.IPv6.String() + "/128"}
	node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	w.create(node)
	if p.name == upstream { // it uses the old ones until it restarts
		p.kill()
		p.startSynced()
	}
	w.seenAs(w.Client, web, w.Client.Addrs())
	w.seenAs(w.pods["a1"].Namespace, web, w.Node1.Addrs())
}

// TestHostnameOverride runs the subject with the names of both Nodes, and
// with the host name.
func TestHostnameOverride(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	host, err := os.Hostname()
	w.must(err)
	node := newNode(w.Node1)
	node.Name = strings.ToLower(host)
	w.create(node)
	local := w.createService("local", "a1 b1", func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeClusterIP
		s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	})
	file := w.writeConfig(w.config("hostnameOverride: node2"))
	for _, step := range []struct {
		name  string
		flags []string
		want  string
	}{
		{"flag", []string{"--hostname-override=node1"}, "a1"},
		{"flag with capitals and spaces", []string{"--hostname-override= NODE2 "}, "b1"},
		{"file", []string{"--config=" + file}, "b1"},
		{"flag over file", []string{"--config=" + file, "--hostname-override=node1"}, "a1"},
		{"host name", nil, ""}, // a Node without local endpoints
	} {
		t.Run(step.name, func(t *testing.T) {
			flags := append([]string{"--kubeconfig=" + w.kubeconfig(), "--cluster-cidr=" + ranges()}, step.flags...)
			p := w.bareProxy(subjectName(), flags...)
			p.startSynced()
			if step.want == "" {
				w.silent(w.pods["a2"].Namespace, local.clusterIPs())
			} else {
				w.reaches(w.pods["a2"].Namespace, local.clusterIPs(), step.want)
			}
			p.kill()
		})
	}
}

// config returns a configuration file for this cluster with additional lines.
func (w *world) config(lines ...string) string {
	w.t.Helper()
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: %q}
clusterCIDR: %q
conntrack: {maxPerCore: 0}
%s
`, w.kubeconfig(), ranges(), strings.Join(lines, "\n"))
}

// awaitAnyRequest waits until the proxy has requested a resource since a
// time.
func (w *world) awaitAnyRequest(resource string, since time.Time) {
	w.t.Helper()
	w.awaitRequests(1, resource, since, func(cluster.Request) bool { return true })
}

// patchNode patches the Node object of node1.
func (w *world) patchNode(patch string, subresources ...string) {
	w.t.Helper()
	nodes, options := w.Admin().CoreV1().Nodes(), metav1.PatchOptions{}
	_, err := nodes.Patch(w.ctx(), w.Node1.Name, types.MergePatchType, []byte(patch), options, subresources...)
	w.must(err)
}

// awaitStatus waits for a status code of the proxy's health server.
func (p *proxy) awaitStatus(path string, code int) {
	p.t.Helper()
	p.eventually(path, func() error {
		answer, err := p.get(healthAddress, path)
		if err == nil && answer.StatusCode != code {
			err = fmt.Errorf("got %s, want %d: %s", answer.Status, code, answer.body)
		}
		return err
	})
}

// seenAs waits until endpoints see connections to the Service's ClusterIPs
// with these source addresses, one of each family.
func (w *world) seenAs(from *lab.Namespace, s *service, want []netip.Addr) {
	w.t.Helper()
	for _, d := range s.clusterIPs() {
		eventually(w.t, fmt.Sprintf("%s -> %v", from.Name, d), func() error {
			result := d.Probe(w.ctx(), from, lab.ProbeOptions{Timeout: shortly})
			if result.Outcome != lab.Answered || !slices.Contains(want, result.Answer.Source.Addr()) {
				return fmt.Errorf("got %v, want source %v", result, want)
			}
			return nil
		})
	}
}

// TestNodeAddresses shows that NodePorts follow the addresses of the Node
// object.
func TestNodeAddresses(t *testing.T) {
	t.Parallel()
	w, web, p := newServedWorld(t)
	old := web.nodePorts()

	added := []netip.Addr{netip.MustParseAddr("192.0.2.77"), netip.MustParseAddr("2001:db8::77")}
	var moved []frontend.Frontend
	for f, addr := range added {
		w.must(w.Node1.AddAddr(netip.PrefixFrom(addr, addr.BitLen())))
		w.must(w.Client.ReplaceRoute(netip.PrefixFrom(addr, addr.BitLen()), w.Node1.Addrs()[f]))
		for _, d := range old {
			if d.To.Addr().Is4() == addr.Is4() {
				moved = append(moved, frontend.Frontend{Network: d.Network, To: netip.AddrPortFrom(addr, d.To.Port())})
			}
		}
	}
	w.silent(w.Client, moved)
	const internalIP = `{"type": "InternalIP", "address": %q}`
	patch := fmt.Sprintf(`{"status": {"addresses": [`+internalIP+`, `+internalIP+`]}}`, added[0], added[1])
	w.patchNode(patch, "status")
	if p.name == upstream { // it uses the old ones until it restarts
		p.kill()
		p.startSynced()
	}
	w.reaches(w.Client, moved, "a1 b1")
	w.silent(w.Client, old)
	if !p.running() {
		t.Errorf("%s: %v", p.name, context.Cause(p.process.Running))
	}
}
