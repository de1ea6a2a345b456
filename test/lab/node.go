package lab

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
)

// Node is a node of the cluster: it forwards packets and has pods.
type Node struct {
	*Namespace
	// PodRanges are the ranges of the node's pods, IPv4 first.
	PodRanges []netip.Prefix

	mu      sync.Mutex
	pods    map[string]*Pod // by name
	turn    int             // the place in PodRanges of the next pod
	bridges []string
}

func (l *Lab) newNode(n int) (*Node, error) {
	ns, err := l.newNamespace(fmt.Sprintf("node%d", n))
	if err != nil {
		return nil, err
	}
	node := &Node{Namespace: ns, pods: map[string]*Pod{}}
	ns.IPv4, ns.IPv6, node.PodRanges = nodeAddrs(n)
	// This makes a lab the same with and without br_netfilter: IP packets
	// inside a bridge do not pass the packet filter.
	err = each([]string{"iptables", "ip6tables", "arptables"}, func(tables string) error {
		return ns.SetSysctl("net.bridge.bridge-nf-call-"+tables, "0")
	})
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	err = errors.Join(err, ns.SetSysctl("net.ipv4.ip_forward", "1"), ns.SetSysctl("net.ipv6.conf.all.forwarding", "1"),
		l.plug(ns))
	return node, errors.Join(err, each(l.Client.Addrs(), func(addr netip.Addr) error {
		return ns.ReplaceRoute(netip.PrefixFrom(addr, 0), addr)
	}))
}

// AddInterface adds an interface with these addresses to the node. It is up,
// but its other end does not answer.
func (node *Node) AddInterface(name string, addrs ...netip.Prefix) error {
	err := connect(end{ns: node.Namespace, name: name}, end{ns: node.lab.wire, name: node.Name + "-" + name})
	return errors.Join(err, each(addrs, func(addr netip.Prefix) error { return node.AddAddrTo(name, addr) }))
}

// RemoveInterface removes an interface that AddInterface added.
func (node *Node) RemoveInterface(name string) error { return node.removeLink(name) }

// ensureBridge creates a bridge for pods unless it exists.
func (node *Node) ensureBridge(name string) error {
	if slices.Contains(node.bridges, name) {
		return nil
	}
	node.bridges = append(node.bridges, name)
	return errors.Join(node.addBridge(name), node.AddAddrTo(name, podGateway6()))
}

// PodConfig configures a pod. Only Name is required.
type PodConfig struct {
	// Name is unique in the lab. It consists of lower-case letters, digits
	// and hyphens.
	Name string
	// IPv4 and IPv6 are the pod's addresses. The default is the next free
	// address of the node's range. Other nodes have routes to that range
	// only.
	IPv4, IPv6 netip.Addr
	// HostInterface is the node's end of the pod's link. The default is
	// "veth" and eight hexadecimal digits.
	HostInterface string
	// Bridge is the bridge of the node that the pod's link joins. The first
	// pod creates it. Without a bridge the node routes each link.
	Bridge string
	// Namespace is an existing namespace, of NewNamespace, for the pod. It can
	// be the namespace of one pod at a time, and Remove does not close it. The
	// default is a new namespace.
	Namespace *Namespace
}

// Pod is a namespace behind a node.
type Pod struct {
	*Namespace
	Node *Node
	// HostInterface is the node's end of the pod's link.
	HostInterface string

	keeps bool // the namespace, after Remove
}

// AddPod adds a pod with the next free addresses.
func (node *Node) AddPod(name string) (*Pod, error) { return node.AddPodWith(PodConfig{Name: name}) }

// AddPods adds pods to the nodes of NodeOf, with servers at all ports. It
// returns them by name.
func (l *Lab) AddPods(ports []uint16, names ...string) (map[string]*Pod, error) {
	pods := map[string]*Pod{}
	for _, name := range names {
		node := l.Node1
		if NodeOf(name) == l.Node2.Name {
			node = l.Node2
		}
		pod, err := node.AddPod(name)
		if err != nil {
			return nil, err
		}
		pods[name] = pod
		if err := pod.Serve(ports...); err != nil {
			return nil, err
		}
	}
	return pods, nil
}

// NodeOf returns the name of the node of a pod, or of the node itself: node2 if
// the name is pod2 or node2 or begins with b, and node1 otherwise.
func NodeOf(name string) string {
	if name[0] == 'b' || name == "pod2" || name == "node2" {
		return "node2"
	}
	return "node1"
}

// AddPodWith adds a pod. The pod is reachable when AddPodWith returns.
func (node *Node) AddPodWith(config PodConfig) (*Pod, error) {
	node.mu.Lock()
	defer node.mu.Unlock()
	if !regexp.MustCompile(`^[a-z0-9-]{1,63}$`).MatchString(config.Name) {
		return nil, fmt.Errorf("pod %q: want a name of lower-case letters, digits and hyphens", config.Name)
	}
	config, err := node.withDefaults(config)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", config.Name, err)
	}
	ns := config.Namespace
	if ns == nil {
		if ns, err = node.lab.newNamespace(config.Name); err != nil {
			return nil, err
		}
	}
	ns.IPv4, ns.IPv6 = config.IPv4, config.IPv6
	pod := &Pod{
		Namespace: ns, Node: node, HostInterface: config.HostInterface, keeps: config.Namespace != nil,
	}
	if err := node.attach(pod, config.Bridge); err != nil {
		return nil, errors.Join(fmt.Errorf("pod %s: %w", config.Name, err), ns.Close())
	}
	node.pods[config.Name] = pod
	return pod, nil
}

// Remove ends the pod's servers and processes and removes its link, routes
// and namespace, unless the pod was given the namespace. From then on, packets
// to its addresses are lost.
func (pod *Pod) Remove() error {
	pod.Node.mu.Lock()
	defer pod.Node.mu.Unlock()
	if _, attached := pod.Node.pods[pod.Name]; !attached {
		return fmt.Errorf("pod %s: not on %s", pod.Name, pod.Node.Name)
	}
	delete(pod.Node.pods, pod.Name)
	// The link is removed first, so that servers cannot close their
	// connections.
	err := pod.Node.removeLink(pod.HostInterface)
	if pod.keeps {
		return err
	}
	return errors.Join(err, pod.Close())
}

func (node *Node) withDefaults(config PodConfig) (PodConfig, error) {
	if config.HostInterface == "" {
		config.HostInterface = hostInterface(config.Name)
	}
	if config.IPv4.IsValid() && config.IPv6.IsValid() {
		return config, nil
	}
	// Pods get the places 2 to 254 in turn, so that the address of a removed
	// pod is not reused soon. In most clusters .1 is the node's.
	const first, places = 2, 253
	taken := map[netip.Addr]bool{}
	for _, pod := range node.pods {
		taken[pod.IPv4], taken[pod.IPv6] = true, true
	}
	for range places {
		place := first + node.turn
		node.turn = (node.turn + 1) % places
		ipv4, ipv6 := AddrIn(node.PodRanges[0], place), AddrIn(node.PodRanges[1], place)
		if taken[ipv4] || taken[ipv6] {
			continue
		}
		config.IPv4, config.IPv6 = cmp.Or(config.IPv4, ipv4), cmp.Or(config.IPv6, ipv6)
		return config, nil
	}
	return config, fmt.Errorf("no free address in %v", node.PodRanges)
}

// attach creates the pod's link, and addresses and routes at both ends.
func (node *Node) attach(pod *Pod, bridge string) error {
	near := end{ns: node.Namespace, name: pod.HostInterface, bridge: bridge}
	far := end{ns: pod.Namespace, name: uplink}
	if bridge == "" {
		return errors.Join(connect(near, far), node.AddAddrTo(pod.HostInterface, podGateway6()),
			node.routePod(pod, pod.HostInterface))
	}
	return errors.Join(node.ensureBridge(bridge), connect(near, far), node.awaitUp(bridge), node.routePod(pod, bridge))
}

// routePod adds the pod's addresses, and the routes at both ends of its link.
// The node reaches the pod through the interface toPod.
func (node *Node) routePod(pod *Pod, toPod string) error {
	var errs []error
	gateways := []netip.Addr{node.IPv4, podGateway6().Addr()}
	for i, addr := range pod.Addrs() {
		errs = append(errs,
			pod.AddAddr(netip.PrefixFrom(addr, addr.BitLen())),
			pod.replaceRouteOn(uplink, netip.PrefixFrom(addr, 0), gateways[i]),
			node.replaceRouteOn(toPod, netip.PrefixFrom(addr, addr.BitLen()), netip.Addr{}),
			node.setNeighbour(toPod, addr, pod.Namespace, uplink, netlink.NUD_REACHABLE))
	}
	return errors.Join(errs...)
}

// hostInterface derives the node's end of a pod's link from the pod's name.
func hostInterface(pod string) string {
	hash := fnv.New32a()
	hash.Write([]byte(pod))
	return fmt.Sprintf("veth%08x", hash.Sum32())
}
