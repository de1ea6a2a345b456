package lab

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"regexp"
)

// PodConfig says how a pod is attached to its node. Only Name is needed.
type PodConfig struct {
	// Name is unique in the lab. Lower-case letters, digits and hyphens.
	Name string
	// IPv4 and IPv6 are the pod's addresses; zero: the next free ones of the
	// node's ranges. An address outside of them has no route on other nodes.
	IPv4, IPv6 netip.Addr
	// HostInterface names the node's end of the pod's link; empty: "veth" and
	// eight hexadecimal digits.
	HostInterface string
	// Bridge names a bridge on the node that the pod's link joins; the node
	// makes it for its first pod. Empty: the link is routed by itself.
	Bridge string
}

// Pod is a namespace behind a node.
type Pod struct {
	*Namespace
	Node *Node
	// HostInterface is the node's end of the pod's link.
	HostInterface string
}

// AddPod attaches a pod with the next free addresses.
func (node *Node) AddPod(name string) (*Pod, error) {
	return node.AddPodWith(PodConfig{Name: name})
}

// AddPodWith attaches a pod. When it returns the pod can be reached.
func (node *Node) AddPodWith(config PodConfig) (*Pod, error) {
	node.mu.Lock()
	defer node.mu.Unlock()
	if !regexp.MustCompile(`^[a-z0-9-]{1,63}$`).MatchString(config.Name) {
		return nil, fmt.Errorf("pod %q: want a name of lower-case letters, digits and hyphens", config.Name)
	}
	config, err := node.complete(config)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", config.Name, err)
	}
	ns, err := node.lab.newNamespace(config.Name)
	if err != nil {
		return nil, err
	}
	ns.IPv4, ns.IPv6 = config.IPv4, config.IPv6
	pod := &Pod{Namespace: ns, Node: node, HostInterface: config.HostInterface}
	if err := node.attach(pod, config.Bridge); err != nil {
		return nil, errors.Join(fmt.Errorf("pod %s: %w", config.Name, err), ns.close())
	}
	node.pods[config.Name] = pod
	return pod, nil
}

// Remove ends the pod's servers and processes and removes the pod, its link and
// its routes. Packets to its addresses are lost from then on.
func (pod *Pod) Remove() error {
	pod.Node.mu.Lock()
	defer pod.Node.mu.Unlock()
	if _, attached := pod.Node.pods[pod.Name]; !attached {
		return fmt.Errorf("pod %s: not attached to %s", pod.Name, pod.Node.Name)
	}
	delete(pod.Node.pods, pod.Name)
	// Removing the link first: a connection must break without a farewell.
	return errors.Join(pod.Node.removeLink(pod.HostInterface), pod.close())
}

// complete fills in what the caller left open.
func (node *Node) complete(config PodConfig) (PodConfig, error) {
	if config.HostInterface == "" {
		config.HostInterface = hostInterface(config.Name)
	}
	if config.IPv4.IsValid() && config.IPv6.IsValid() {
		return config, nil
	}
	// Places 2 to 254 in turn (.1 is the node's in most clusters): what was just
	// given up is not given out again soon.
	const first, places = 2, 253
	for range places {
		place := first + node.turn
		node.turn = (node.turn + 1) % places
		ipv4, ipv6 := nthAddr(node.PodRanges[0], place), nthAddr(node.PodRanges[1], place)
		if node.taken(ipv4) || node.taken(ipv6) {
			continue
		}
		if !config.IPv4.IsValid() {
			config.IPv4 = ipv4
		}
		if !config.IPv6.IsValid() {
			config.IPv6 = ipv6
		}
		return config, nil
	}
	return config, fmt.Errorf("no free address in %v", node.PodRanges)
}

// taken tells whether a pod of the node has the address.
func (node *Node) taken(addr netip.Addr) bool {
	for _, pod := range node.pods {
		if pod.IPv4 == addr || pod.IPv6 == addr {
			return true
		}
	}
	return false
}

// attach lays the pod's link and makes the routes at both ends.
func (node *Node) attach(pod *Pod, bridge string) error {
	near := end{ns: node.Namespace, name: pod.HostInterface, bridge: bridge}
	toPod := pod.HostInterface
	if bridge != "" {
		if err := node.ensureBridge(bridge); err != nil {
			return err
		}
		toPod = bridge
	}
	if err := connect(near, end{ns: pod.Namespace, name: uplink}); err != nil {
		return err
	}
	if bridge == "" {
		if err := node.AddAddrTo(pod.HostInterface, podGateway6()); err != nil {
			return err
		}
	} else if err := node.awaitUp(bridge); err != nil {
		return err
	}
	return node.routePod(pod, toPod)
}

// routePod gives the pod its addresses, and makes the routes at both ends of its
// link. The node reaches it through the interface toPod.
func (node *Node) routePod(pod *Pod, toPod string) error {
	link, err := pod.link(uplink)
	if err != nil {
		return err
	}
	gateways := []netip.Addr{node.IPv4, podGateway6().Addr()}
	for i, addr := range pod.Addrs() {
		if err := pod.AddAddr(hostPrefix(addr)); err != nil {
			return err
		}
		if err := pod.replaceRouteOn(uplink, everywhere(addr), gateways[i]); err != nil {
			return err
		}
		if err := node.replaceRouteOn(toPod, hostPrefix(addr), netip.Addr{}); err != nil {
			return err
		}
		if err := node.learnNeighbour(toPod, addr, link.Attrs().HardwareAddr); err != nil {
			return err
		}
	}
	return nil
}

// hostInterface derives the node's end of a pod's link from the pod's name.
func hostInterface(pod string) string {
	hash := fnv.New32a()
	hash.Write([]byte(pod))
	return fmt.Sprintf("veth%08x", hash.Sum32())
}
