package apiserver

import (
	"context"
	"fmt"
	"os"
	"slices"
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
	speakers := w.startMetalLB("metallb.yaml")
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

// TestCNIMetalLBBGP shows Services of type LoadBalancer whose addresses MetalLB
// announces to a BGP router, FRR in the namespace of the client.
func TestCNIMetalLBBGP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startRouter()
	speakers := w.startMetalLB("metallb-bgp.yaml")
	w.startProxies()

	// MetalLB's own implementation of BGP has IPv4 only.
	ipv4 := func(s *corev1.Service) { s.Spec.IPFamilyPolicy = nil }
	local := func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }
	web := w.balanced("web", "b1 b2", ipv4)
	w.announced(web, w.Nodes()...)
	w.reaches("b1 b2", web)

	// Local: only nodes with an endpoint announce the address.
	here := w.balanced("local", "a1", ipv4, local)
	w.announced(here, w.Node1)
	w.reaches("a1", here)
	w.seen("client", here)
	w.setEndpoints("local", "local", []string{"b1"}, time.Time{})
	w.announced(here, w.Node2)
	w.reaches("b1", here)
	w.seen("client", here)
	w.setEndpoints("local", "local", []string{"a1", "b1"}, time.Time{})
	w.announced(here, w.Nodes()...)

	// The router forgets a node whose speaker ends, and one that is cut off.
	began := time.Now()
	speakers[0].End(syscall.SIGKILL)
	w.announced(web, w.Node2)
	t.Logf("speaker killed: no route to its node after %v", time.Since(began).Round(time.Millisecond))
	w.startSpeaker(w.Node1)
	w.announced(web, w.Nodes()...)
	began = time.Now()
	w.run(w.Node1.Namespace, "ip", "link", "set", "eth0", "down")
	w.announced(web, w.Node2)
	t.Logf("node cut off: no route to it after %v", time.Since(began).Round(time.Millisecond))
	w.reaches("b1 b2", web)
	w.reaches("b1", here)
}

// startRouter starts FRR in the namespace of the client. It balances
// connections over all nodes that announce an address.
func (w *world) startRouter() {
	w.t.Helper()
	w.must(w.Client.SetSysctl("net.ipv4.fib_multipath_hash_policy", "1")) // by port, too
	folder := w.t.TempDir()
	config := "router bgp 64512\n no bgp ebgp-requires-policy\n"
	for _, node := range w.Nodes() {
		config += fmt.Sprintf(" neighbor %[1]v remote-as 64513\n neighbor %[1]v passive\n", node.IPv4)
	}
	for daemon, config := range map[string]string{"zebra": "", "bgpd": config} {
		file := folder + "/" + daemon
		w.must(os.WriteFile(file+".conf", []byte(config), 0o600))
		process, err := w.Client.StartProcess(context.Background(), lab.ProcessConfig{
			Program: "/usr/lib/frr/" + daemon, Log: file + ".log",
			Args: []string{
				"--user=root", "--group=frrvty", "--vty_port=0", "--log=stdout", "--config_file=" + file + ".conf",
				"--pid_file=" + file + ".pid", "--socket=" + folder + "/zebra.sock", "--vty_socket=" + folder,
			},
		})
		w.must(err)
		w.t.Cleanup(func() {
			process.End(syscall.SIGKILL)
			if w.t.Failed() {
				w.t.Logf("log of %s:\n%s", daemon, process.EndOfLog())
			}
		})
	}
}

// announced waits until the routes of the client to the first address of r lead
// to these nodes.
func (w *world) announced(r route, nodes ...*lab.Node) {
	w.t.Helper()
	ip := r.to[0].To.Addr().String()
	eventually(w.t, "routes to "+ip, func() error {
		got := w.run(w.Client, "ip", "route", "show", ip)
		for _, node := range w.Nodes() {
			if strings.Contains(got, "via "+node.IPv4.String()+" ") != slices.Contains(nodes, node) {
				return fmt.Errorf("got %s", got)
			}
		}
		return nil
	})
}

// startMetalLB starts MetalLB with the configuration in a file of testdata. It
// returns the speakers of node1 and node2.
func (w *world) startMetalLB(config string) []*lab.Process {
	w.t.Helper()
	w.kubectl("", "apply", "--filename="+cniFile("metallb.yaml"))
	// No kube-proxy leads the API server to the webhooks.
	w.kubectl("", "delete", "validatingwebhookconfiguration", "metallb-webhook-configuration")
	w.kubectl("", "patch", "customresourcedefinition", "bgppeers.metallb.io", "--type=json",
		`--patch=[{"op": "replace", "path": "/spec/conversion", "value": {"strategy": "None"}}]`)
	w.kubectl("", "wait", "--for=condition=Established", "customresourcedefinition", "--all")
	w.kubectl("", "apply", "--filename=testdata/"+config)
	w.startCNI(w.Node2, "metallb-controller", metallb+"/controller", "--kubeconfig", nil,
		[]string{"--namespace=" + metallb, "--webhook-mode=disabled", "--port=7473"})
	return []*lab.Process{w.startSpeaker(w.Node1), w.startSpeaker(w.Node2)}
}

// startSpeaker starts the speaker of a node.
func (w *world) startSpeaker(node *lab.Node) *lab.Process {
	w.t.Helper()
	w.kubectl(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: speaker-%s, namespace: metallb-system, labels: {app: metallb, component: speaker}}
spec:
  {nodeName: %[1]s, hostNetwork: true, serviceAccountName: speaker, containers: [{name: c, image: speaker}]}
`, node.Name), "apply", "--filename=-")
	w.kubectl("", "patch", "pod", "speaker-"+node.Name, "--namespace="+metallb, "--subresource=status",
		fmt.Sprintf(`--patch={"status": {"podIP": %q, "podIPs": [{"ip": %[1]q}]}}`, node.IPv4))
	// Speakers find each other by these labels.
	return w.startCNI(node, "metallb-speaker", metallb+"/speaker", "--kubeconfig", nil, []string{
		"--namespace=" + metallb, "--node-name=" + node.Name, "--host=" + node.IPv4.String(),
		"--ml-bindaddr=" + node.IPv4.String(), "--ml-labels=app=metallb,component=speaker",
	})
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
