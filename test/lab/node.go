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

func (l *Lab) newNode(n int) (*Node, error) {
	ns, err := l.newNamespace(fmt.Sprintf("node%d", n))
	if err != nil {
		return nil, err
	}
	node := &Node{Namespace: ns, pods: map[string]*Pod{}}
	ns.IPv4, ns.IPv6, node.PodRanges = nodeAddrs(n)
	forwarding := map[string]string{"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1"}
	// This makes a lab the same with and without br_netfilter.
	bridges := ns.setSysctls(bridgeSysctls())
	if errors.Is(bridges, os.ErrNotExist) {
		bridges = nil
	}
	err = errors.Join(ns.setSysctls(forwarding), bridges, l.plug(ns))
	for _, addr := range l.Client.Addrs() {
		err = errors.Join(err, ns.ReplaceRoute(everywhere(addr), addr))
	}
	return node, err
}

// AddInterface adds an interface with these addresses to the node. It is up,
// but its other end does not answer.
func (node *Node) AddInterface(name string, addrs ...netip.Prefix) error {
	node.mu.Lock()
	node.extraEnd++
	far := fmt.Sprintf("%s-%d", node.Name, node.extraEnd)
	node.mu.Unlock()
	err := connect(end{ns: node.Namespace, name: name}, end{ns: node.lab.wire, name: far})
	for _, addr := range addrs {
		err = errors.Join(err, node.AddAddrTo(name, addr))
	}
	return err
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
