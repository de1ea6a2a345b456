package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
)

// Node is a node of the cluster: it forwards packets, and pods are attached to it.
type Node struct {
	*Namespace
	// PodRanges hold the addresses of the node's pods, one range a family.
	PodRanges []netip.Prefix

	mu       sync.Mutex
	pods     map[string]*Pod // by name
	turn     int             // of the next pod to get addresses of PodRanges
	bridges  []string
	extraEnd int // number of extra interfaces made so far
}

// newNode makes a node, without routes to other nodes' pods.
func (l *Lab) newNode(plan nodePlan) (*Node, error) {
	ns, err := l.newNamespace(plan.name)
	if err != nil {
		return nil, err
	}
	ns.IPv4, ns.IPv6 = plan.ipv4, plan.ipv6
	node := &Node{
		Namespace: ns,
		PodRanges: []netip.Prefix{plan.pods4, plan.pods6},
		pods:      map[string]*Pod{},
	}
	if err := ns.SetSysctls(forwardingSysctls()); err != nil {
		return nil, err
	}
	// Lab networks are the same with and without br_netfilter.
	if err := ns.FilterBridgedFrames(false); err != nil && !errors.Is(err, os.ErrNotExist) {
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
	return node, nil
}

// AddInterface gives the node one more interface with these addresses. It is up;
// what it leads to answers nothing.
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

// RemoveInterface removes what AddInterface added.
func (node *Node) RemoveInterface(name string) error { return node.removeLink(name) }

// ensureBridge makes the bridge that pods are attached to unless it is there.
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
