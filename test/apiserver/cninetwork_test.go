package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/frontend"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// TestCNI shows Services whose endpoints are pods that CNI plugins connect,
// with the detectLocalMode that fits.
func TestCNI(t *testing.T) {
	t.Parallel()
	const (
		hostLocal = `"ipam": {"type": "host-local", "dataDir": "DIR",
			"ranges": [[{"subnet": "RANGE4"}], [{"subnet": "RANGE6"}]],
			"routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}`
		flannel = `"type": "flannel", "subnetFile": "DIR/subnet.env", "dataDir": "DIR/flannel",
			"ipam": {"dataDir": "DIR"}, "delegate": {"hairpinMode": true, "isDefaultGateway": true}`
		clusterCIDR = "--cluster-cidr=10.245.0.0/16,fd00:245::/48"
	)
	for _, n := range []cniNetwork{
		{name: "bridge",
			plugin: `"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, ` + hostLocal,
			flags:  []string{"--detect-local-mode=BridgeInterface", "--pod-bridge-interface=cni0"}},
		{name: "ptp", plugin: `"type": "ptp", ` + hostLocal,
			flags: []string{"--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=veth"}},
		{name: "flannel host-gw, nftables", plugin: flannel, flags: []string{clusterCIDR},
			flannel: `"EnableNFTables": true, "Backend": {"Type": "host-gw"}`},
		{name: "flannel host-gw, iptables", plugin: flannel, flags: []string{clusterCIDR},
			flannel: `"Backend": {"Type": "host-gw"}`},
		{name: "flannel vxlan, nftables", plugin: flannel, flags: []string{"--detect-local-mode=NodeCIDR"},
			flannel: `"EnableNFTables": true, "Backend": {"Type": "vxlan"}`},
		{name: "flannel vxlan, iptables", plugin: flannel, flags: []string{clusterCIDR},
			flannel: `"Backend": {"Type": "vxlan"}`},
	} {
		t.Run(n.name, func(t *testing.T) {
			n.world, n.folders = newBareWorld(t), map[*lab.Node]string{}
			n.test()
		})
	}
}

// cniNetwork is a pod network. The nodes of the lab have routes to other pods,
// so these have addresses in ranges of their own.
type cniNetwork struct {
	*world
	name    string
	plugin  string   // configuration; DIR, RANGE4 and RANGE6 depend on the node
	flags   []string // of the proxies
	flannel string   // options of flannel's network, if it connects the nodes

	folders map[*lab.Node]string // of the state of each node
	daemons []*lab.Process       // of flannel, on node1 and node2
}

func (n *cniNetwork) test() {
	n.start()
	p := n.startProxies(n.flags...)
	n.expose("web", []string{"a1", "a2", "b1"})
	n.reaches("a1 a2 b1", n.routes("web")...)
	n.expose("local", []string{"a2"}, func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	})
	n.seen("client", route{n.Client, n.frontends("local", "nodePort")})
	n.expose("remote", []string{"b1"})
	n.keepsPolicy("a2", "b1", n.frontends("remote", "clusterIP"))

	stream := startStream(n.t, n.routes("web"), nil)
	stream.pass(n.t, *attempts)
	if n.flannel != "" {
		stream.phase("restart of flannel")
		n.daemons[0].End(syscall.SIGTERM)
		n.startFlannel(n.Node1)
		stream.pass(n.t, *attempts)
	}
	for _, name := range []string{upstream, product} {
		stream.phase("swap to " + name)
		p.terminate()
		p = n.proxy(name, n.flags...)
		p.startSynced()
		stream.pass(n.t, *attempts)
	}
	_, err := stream.result()
	n.must(err)

	n.run(n.Node1.Namespace, "nft", "flush", "ruleset")
	n.reaches("a1 a2 b1", n.routes("web")...)
	eventually(n.t, "doctor", func() error {
		checks := []string{"table", "filters", "local-detection", "bridge-netfilter", "other-proxies"}
		if got, err := n.doctor(checks); err != nil || got != strings.Repeat("ok\n", len(checks)) {
			return fmt.Errorf("got %v, %s", err, got)
		}
		return nil
	})
}

// ranges returns the pod ranges of a node.
func (n *cniNetwork) ranges(node *lab.Node) []netip.Prefix {
	number := strings.TrimPrefix(node.Name, "node")
	return []netip.Prefix{
		netip.MustParsePrefix("10.245." + number + ".0/24"), netip.MustParsePrefix("fd00:245:0:" + number + "::/64"),
	}
}

// start connects the nodes, and replaces the pods of the world.
func (n *cniNetwork) start() {
	n.t.Helper()
	n.kubectl("", "apply", "--filename="+cniFile("flannel.yaml"))
	for i, node := range n.Nodes() {
		n.must(n.CreateNode(n.ctx(), node.Namespace, n.ranges(node)...))
		// flannel panics if the Node has no annotation. Kubelets add this one.
		n.kubectl("", "annotate", "node", node.Name, "volumes.kubernetes.io/controller-managed-attach-detach=true")
		for _, name := range []string{"iptables", "ip6tables"} { // a requirement of Kubernetes
			n.must(node.SetSysctl("net.bridge.bridge-nf-call-"+name, "1"))
		}
		n.folders[node] = n.t.TempDir()
		if n.flannel != "" {
			n.daemons = append(n.daemons, n.startFlannel(node))
			continue
		}
		other := n.Nodes()[1-i]
		for _, to := range n.ranges(other) {
			n.must(node.ReplaceRoute(to, other.AddrLike(to.Addr())))
		}
	}
	for name, node := range map[string]*lab.Node{"a1": n.Node1, "a2": n.Node1, "b1": n.Node2} {
		n.pods[name] = n.addPod(node, name)
	}
	for _, addr := range n.pods["b1"].Addrs() {
		to := []frontend.Frontend{{Network: "tcp", To: netip.AddrPortFrom(addr, target)}}
		n.seen("a1", route{n.pods["a1"].Namespace, to})
	}
}

// startFlannel starts the daemon of a node and waits until pods can be added.
func (n *cniNetwork) startFlannel(node *lab.Node) *lab.Process {
	n.t.Helper()
	folder := n.folders[node]
	config := `{"Network": "10.245.0.0/16", "EnableIPv6": true, "IPv6Network": "fd00:245::/48", ` + n.flannel + `}`
	n.must(os.WriteFile(folder+"/net-conf.json", []byte(config), 0o644))
	daemon := n.startCNI(node, "flanneld", "kube-flannel/flannel", "--kubeconfig-file",
		[]string{"NODE_NAME=" + node.Name}, []string{"--ip-masq", "--kube-subnet-mgr",
			"--net-config-path=" + folder + "/net-conf.json", "--subnet-file=" + folder + "/subnet.env"})
	eventually(n.t, "flannel", func() error {
		if daemon.Running.Err() != nil {
			n.t.Fatal(context.Cause(daemon.Running))
		}
		if !strings.Contains(daemon.Log(), "flannel is ready") {
			return fmt.Errorf("not ready: %s", daemon.EndOfLog())
		}
		return nil
	})
	return daemon
}

// addPod creates a namespace and adds it to the network of a node, as a
// kubelet does.
func (n *cniNetwork) addPod(node *lab.Node, name string) *lab.Pod {
	n.t.Helper()
	ns, err := lab.NewNamespace(name)
	n.must(err)
	n.t.Cleanup(func() { n.must(ns.Close()) })
	ranges := n.ranges(node)
	config := strings.NewReplacer("DIR", n.folders[node], "RANGE4", ranges[0].String(), "RANGE6", ranges[1].String()).
		Replace(`{"cniVersion": "0.4.0", "name": "pods", ` + n.plugin + `}`)
	var plugin struct{ Type string }
	n.must(json.Unmarshal([]byte(config), &plugin))
	cmd := node.Command(n.ctx(), cniFile(plugin.Type))
	cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID="+name, "CNI_IFNAME=eth0",
		fmt.Sprintf("CNI_NETNS=/proc/%d/fd/%d", os.Getpid(), ns.Fd()), "CNI_PATH="+filepath.Dir(cniFile(plugin.Type)))
	cmd.Stdin = strings.NewReader(config)
	out, err := cmd.Output()
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err != nil || json.Unmarshal(out, &result) != nil || len(result.IPs) != 2 {
		n.t.Fatalf("add pod %s: %v: %s", name, err, out)
	}
	ns.IPv4, ns.IPv6 = result.IPs[0].Address.Addr(), result.IPs[1].Address.Addr()
	labtest.Serve(n.t, target, ns)
	return &lab.Pod{Namespace: ns, Node: node}
}

// seen waits until endpoints see the address of a client or node on routes.
func (w *world) seen(as string, routes ...route) {
	w.t.Helper()
	eventually(w.t, "source address", func() error {
		if got := w.sources(routes...); got != as {
			return fmt.Errorf("got %s, want %s", got, as)
		}
		return nil
	})
}

// keepsPolicy shows that a filter like a NetworkPolicy's, between two pods,
// applies to connections through a Service.
func (w *world) keepsPolicy(from, to string, service []frontend.Frontend) {
	w.t.Helper()
	at := w.Node1.Namespace
	rules := "table inet network-policy { chain forward { type filter hook forward priority filter;"
	for i, family := range []string{"ip", "ip6"} {
		rules += fmt.Sprintf("%[1]s saddr %[2]v %[1]s daddr %[3]v drop;", family,
			w.at(from).Addrs()[i], w.at(to).Addrs()[i])
	}
	w.seen("a1", route{w.at("a1"), service})
	w.run(at, "nft", rules+"}; }")
	w.reaches("none", route{w.at(from), service})
	w.seen("a1", route{w.at("a1"), service})
	w.run(at, "nft", "delete table inet network-policy")
	w.seen(from, route{w.at(from), service})
}
