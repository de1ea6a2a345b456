package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
)

// Node is a node of the cluster: it forwards packets and has pods.
type Node struct {
	*Namespace
	// PodRanges are the ranges of the node's pods, IPv4 first.
	PodRanges []netip.Prefix

	mu       sync.Mutex
	pods     map[string]*Pod // by name
	turn     int             // the place in PodRanges of the next pod
	bridges  []string
	extraEnd int // the number of extra interfaces created so far
}

func (l *Lab) newNode(plan nodePlan) (*Node, error) {
	ns, err := l.newNamespace(plan.name)
	if err != nil {
		return nil, err
	}
	ns.IPv4, ns.IPv6 = plan.ipv4, plan.ipv6
	forwarding := map[string]string{"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1"}
	if err := ns.setSysctls(forwarding); err != nil {
		return nil, err
	}
	// This makes a lab the same with and without br_netfilter.
	if err := ns.setSysctls(bridgeSysctls()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := l.plug(ns); err != nil {
		return nil, err
	}
	for _, addr := range l.Client.Addrs() {
		if err := ns.ReplaceRoute(everywhere(addr), addr); err != nil {
			return nil, err
		}
	}
	return &Node{Namespace: ns, PodRanges: plan.pods, pods: map[string]*Pod{}}, nil
}

// AddInterface adds an interface with these addresses to the node. It is up,
// but its other end does not answer.
func (node *Node) AddInterface(name string, addrs ...netip.Prefix) error {
	node.mu.Lock()
	node.extraEnd++
	far := fmt.Sprintf("%s-%d", node.Name, node.extraEnd)
	node.mu.Unlock()
	if err := connect(end{ns: node.Namespace, name: name}, end{ns: node.lab.wire, name: far}); err != nil {
		return err
	}
	for _, addr := range addrs {
		if err := node.AddAddrTo(name, addr); err != nil {
			return err
		}
	}
	return nil
}

// RemoveInterface removes an interface that AddInterface added.
func (node *Node) RemoveInterface(name string) error { return node.removeLink(name) }

// ensureBridge creates a bridge for pods unless it exists.
func (node *Node) ensureBridge(name string) error {
	if slices.Contains(node.bridges, name) {
		return nil
	}
	if err := node.addBridge(name); err != nil {
		return err
	}
	if err := node.AddAddrTo(name, podGateway6()); err != nil {
		return err
	}
	node.bridges = append(node.bridges, name)
	return nil
}
