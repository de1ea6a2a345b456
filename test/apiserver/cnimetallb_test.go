package apiserver

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/test/lab"
)

const metallb = "metallb-system"

// TestCNIMetalLB shows Services of type LoadBalancer whose addresses MetalLB
// allocates, and announces by ARP and NDP.
func TestCNIMetalLB(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	speakers := w.startMetalLB()
	w.startProxies()

	w.reaches("a1 b1", w.balanced("web", "a1 b1"))
	shared := map[string]string{"metallb.universe.tf/allow-shared-ip": "key"}
	tcp := w.balanced("tcp", "a1", func(s *corev1.Service) {
		s.Annotations, s.Spec.Ports = shared, s.Spec.Ports[:1]
	})
	udp := w.balanced("udp", "b2", func(s *corev1.Service) {
		s.Annotations, s.Spec.Ports = shared, s.Spec.Ports[1:]
		s.Spec.LoadBalancerIP = w.service("tcp").Status.LoadBalancer.Ingress[0].IP
		s.Spec.IPFamilyPolicy = nil
	})
	w.reaches("a1", tcp)
	w.reaches("b2", udp)
	guarded := w.balanced("guarded", "a1", func(s *corev1.Service) {
		s.Spec.LoadBalancerSourceRanges = []string{w.Node2.IPv4.String() + "/32", w.Node2.IPv6.String() + "/128"}
	})
	w.reaches("a1", route{w.Node2.Namespace, guarded.to})
	w.reaches("none", guarded)

	local := w.balanced("local", "a1", func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	})
	w.reaches("a1", local)
	w.seen("client", local)
	w.setEndpoints("local", "local", []string{"b1"}, time.Time{}) // node2 announces the addresses
	w.reaches("b1", local)
	w.seen("client", local)
	w.setEndpoints("local", "local", []string{"a1", "b1"}, time.Time{})
	announcer := w.announcer(local)
	speakers[announcer].End(syscall.SIGKILL) // as if the node failed
	w.reaches([]string{"b1", "a1"}[announcer], local)
}

// startMetalLB starts MetalLB in layer 2 mode, with addresses in the network
// of the nodes. It returns the speakers of node1 and node2.
func (w *world) startMetalLB() []*lab.Process {
	w.t.Helper()
	w.kubectl("", "apply", "--filename="+cniFile("metallb.yaml"))
	// No kube-proxy leads the API server to the webhook.
	w.kubectl("", "delete", "validatingwebhookconfiguration", "metallb-webhook-configuration")
	w.kubectl("", "wait", "--for=condition=Established", "customresourcedefinition", "--all")
	w.kubectl("", "apply", "--filename=testdata/metallb.yaml")
	w.startCNI(w.Node2, "metallb-controller", metallb+"/controller", "--kubeconfig", nil,
		[]string{"--namespace=" + metallb, "--webhook-mode=disabled", "--port=7473"})
	const labels = "app=metallb,component=speaker" // by which speakers find each other
	var speakers []*lab.Process
	for _, node := range w.Nodes() {
		w.kubectl(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: speaker-%s, namespace: metallb-system, labels: {app: metallb, component: speaker}}
spec:
  {nodeName: %[1]s, hostNetwork: true, serviceAccountName: speaker, containers: [{name: c, image: speaker}]}
`, node.Name), "apply", "--filename=-")
		w.kubectl("", "patch", "pod", "speaker-"+node.Name, "--namespace="+metallb, "--subresource=status",
			fmt.Sprintf(`--patch={"status": {"podIP": %q, "podIPs": [{"ip": %[1]q}]}}`, node.IPv4))
		speakers = append(speakers, w.startCNI(node, "metallb-speaker", metallb+"/speaker", "--kubeconfig", nil,
			[]string{
				"--namespace=" + metallb, "--node-name=" + node.Name, "--host=" + node.IPv4.String(),
				"--ml-bindaddr=" + node.IPv4.String(), "--ml-labels=" + labels,
			}))
	}
	return speakers
}

// balanced creates a Service of type LoadBalancer and waits for its addresses.
// It returns the route from the client, whose only route to the addresses is
// its link, so that it needs an announcement.
func (w *world) balanced(name, pods string, modifiers ...func(*corev1.Service)) route {
	w.t.Helper()
	w.expose(name, strings.Fields(pods), append(modifiers, func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
	})...)
	eventually(w.t, name, func() error {
		if s := w.service(name); len(s.Status.LoadBalancer.Ingress) < len(s.Spec.ClusterIPs) {
			return fmt.Errorf("got addresses %v", s.Status.LoadBalancer.Ingress)
		}
		return nil
	})
	return route{w.Client, w.frontends(name, "loadBalancerIP")}
}

// announcer returns the index of the node that announces the addresses of a
// route: the client's neighbour has its hardware address.
func (w *world) announcer(r route) int {
	w.t.Helper()
	ip := r.to[0].To.Addr().String()
	fields := strings.Fields(w.run(w.Client, "ip", "neighbour", "show", "to", ip))
	for i, node := range w.Nodes() {
		if len(fields) > 4 && strings.Contains(w.run(node.Namespace, "ip", "link", "show", "eth0"), fields[4]) {
			return i
		}
	}
	w.t.Fatalf("neighbour %s: got %v", ip, fields)
	return 0
}
