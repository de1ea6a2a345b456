package apiserver

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/test/lab"
)

// TestNodeMissing starts the subject before its Node object is there. It waits, and takes the addresses of the Node for NodePorts when
// that comes.
func TestNodeMissing(t *testing.T) {
	t.Parallel()
	w := newBareWorld(t)
	web := w.createService("web", "a1 b1")
	p := w.subject()
	begin := time.Now()
	p.start()
	w.asked("nodes", begin)
	time.Sleep(3 * time.Second)
	p.notHealthy()
	if tables := w.tables(w.Node1); strings.Contains(tables, web.Spec.ClusterIP) {
		t.Errorf("tables without a Node:\n%s", tables)
	}
	w.createNode(w.Node1)
	web.servedBy("a1 b1")
	p.awaitHealth()
}

// TestNodeNeverComes shows that ClusterIPs are served without a Node object in the end.
func TestNodeNeverComes(t *testing.T) {
	t.Parallel()
	w := newBareWorld(t)
	web := w.createService("web", "a1 b1")
	w.subject().start()
	w.reaches(w.pods["a1"].Namespace, web.clusterIPs(), "a1 b1")
}

// TestNodeDeleted deletes the Node object of a node that goes on.
func TestNodeDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.createService("web", "a1 b1")
	p := w.subject()
	p.startSynced()
	web.servedBy("a1 b1")

	// While a finalizer holds it, it is being deleted.
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
			return fmt.Errorf("it is there")
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
		t.Errorf("%s ended: %v", p.name, p.err)
	}
}

// TestPodCIDRs lets the subject tell pods from others by the podCIDRs of its Node, which come late and change when the Node is made anew.
func TestPodCIDRs(t *testing.T) {
	t.Parallel()
	w := newBareWorld(t)
	node := newNode(w.Node1)
	node.Spec.PodCIDR, node.Spec.PodCIDRs = "", nil
	w.create(node)
	web := w.createService("web", "a2") // of node1: answers come back through it
	p := w.subject("--cluster-cidr=", "--detect-local-mode=NodeCIDR")
	begin := time.Now()
	p.start()
	w.asked("nodes", begin)
	time.Sleep(3 * time.Second)
	p.notHealthy()

	w.patchNode(fmt.Sprintf(`{"spec": {"podCIDR": %q, "podCIDRs": [%q, %q]}}`, w.Node1.PodRanges[0], w.Node1.PodRanges[0], w.Node1.PodRanges[1]))
	web.servedBy("a2")
	p.awaitHealth()
	w.seenAs(w.pods["a1"].Namespace, web, w.pods["a1"].Addrs())
	w.seenAs(w.Client, web, w.Node1.Addrs())

	w.must(w.Admin().CoreV1().Nodes().Delete(w.ctx(), w.Node1.Name, metav1.DeleteOptions{}))
	node = newNode(w.Node1)
	node.Spec.PodCIDRs = []string{w.Client.IPv4.String() + "/32", w.Client.IPv6.String() + "/128"}
	node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	w.create(node)
	if p.name == upstream { // it goes on with the old ones until it is started again
		p.kill()
		p.startSynced()
	}
	w.seenAs(w.Client, web, w.Client.Addrs())
	w.seenAs(w.pods["a1"].Namespace, web, w.Node1.Addrs())
}

// TestHostnameOverride runs a node under another one's name, and under that of the machine.
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
	for _, step := range []struct {
		name  string
		flags []string
		want  string
	}{
		{"flag", []string{"--hostname-override=node1"}, "a1"},
		{"flag with capitals and spaces", []string{"--hostname-override= NODE2 "}, "b1"},
		{"file", []string{"--config=" + w.writeConfig(w.config("hostnameOverride: node2"))}, "b1"},
		{"flag over file", []string{"--config=" + w.writeConfig(w.config("hostnameOverride: node2")), "--hostname-override=node1"}, "a1"},
		{"host name", nil, ""},
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

// config is a configuration file for this cluster with more lines.
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

// asked waits until the proxy has asked for a resource since then.
func (w *world) asked(resource string, since time.Time) {
	w.t.Helper()
	eventually(w.t, "requests for "+resource, func() error {
		requests, err := w.APIServer.Requests()
		if err != nil {
			return err
		}
		for _, r := range requests {
			if r.Object.Resource == resource && r.Received.After(since) {
				return nil
			}
		}
		return fmt.Errorf("none")
	})
}

// patchNode changes the Node object of node1.
func (w *world) patchNode(patch string) {
	w.t.Helper()
	_, err := w.Admin().CoreV1().Nodes().Patch(w.ctx(), w.Node1.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	w.must(err)
}

// awaitStatus waits until a server of the proxy answers with a status code.
func (p *proxy) awaitStatus(path string, code int) {
	p.t.Helper()
	p.eventually(path, func() error {
		answer, err := p.get(healthAddress, path)
		if err == nil && answer.StatusCode != code {
			err = fmt.Errorf("%s, want %d: %s", answer.Status, code, answer.body)
		}
		return err
	})
}

// seenAs waits until endpoints see connections to the Service's ClusterIPs come from these addresses, one a family.
func (w *world) seenAs(from *lab.Namespace, s *service, want []netip.Addr) {
	w.t.Helper()
	for _, d := range s.clusterIPs() {
		eventually(w.t, fmt.Sprintf("%s -> %v", from.Name, d), func() error {
			result := lab.Probe(w.ctx(), from, d.network, d.addr, lab.ProbeOptions{Timeout: shortly})
			if source := result.Answer.Source.Addr(); result.Outcome != lab.Answered || source != want[0] && source != want[1] {
				return fmt.Errorf("%v, want it to come from %v", result, want)
			}
			return nil
		})
	}
}

// TestNodeAddresses changes the addresses of the Node object: NodePorts move with them.
func TestNodeAddresses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.createService("web", "a1 b1")
	p := w.subject()
	p.startSynced()
	old := web.nodePorts(w.Node1)
	w.reaches(w.Client, old, "a1 b1")

	added := []netip.Addr{netip.MustParseAddr("192.0.2.77"), netip.MustParseAddr("2001:db8::77")}
	var moved []destination
	for f, addr := range added {
		w.must(w.Node1.AddAddr(netip.PrefixFrom(addr, addr.BitLen())))
		w.must(w.Client.ReplaceRoute(netip.PrefixFrom(addr, addr.BitLen()), w.Node1.Addrs()[f]))
		for _, d := range old {
			if d.addr.Addr().Is4() == addr.Is4() {
				moved = append(moved, destination{d.network, netip.AddrPortFrom(addr, d.addr.Port())})
			}
		}
	}
	w.silent(w.Client, moved)
	patch := fmt.Sprintf(`{"status": {"addresses": [{"type": "InternalIP", "address": %q}, {"type": "InternalIP", "address": %q}]}}`, added[0], added[1])
	_, err := w.Admin().CoreV1().Nodes().Patch(w.ctx(), w.Node1.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	w.must(err)
	if p.name == upstream { // it goes on with the old ones until it is started again
		p.kill()
		p.startSynced()
	}
	w.reaches(w.Client, moved, "a1 b1")
	w.silent(w.Client, old)
	if !p.running() {
		t.Errorf("%s ended: %v", p.name, p.err)
	}
}
