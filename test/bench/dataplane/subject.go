package main

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/nftproxy/nftproxy/test/lab"
)

// subject is one instance of a variant: a place whose node has its rules.
type subject struct {
	variant  variant
	instance int
	place    *place
	targets  targets
	fresh    int // new clients so far
}

func (s *subject) proxied() bool { return s.variant.services > 0 }

// introduce connects the known clients.
func (s *subject) introduce() error {
	for _, path := range []string{fromNode, fromPod} {
		if !s.proxied() {
			continue
		}
		if _, err := s.task(scenario{path, knownClient}, knownClients).latencies(knownClients); err != nil {
			return err
		}
	}
	return nil
}

// task returns the task of a measurement. New clients make at most that many
// connections.
func (s *subject) task(c scenario, connections int) *task {
	t := &task{
		kind: c.kind, established: c.established,
		from: s.place.node, to: s.targets[c.to], server: s.place.server, node: s.place.node,
	}
	all := nodeClients
	if c.path == fromPod {
		t.from, all = s.place.pod, podClients
	}
	first, n := 1, c.clients
	if n == 0 {
		first, n = 1+knownClients+s.fresh, connections
		s.fresh += connections
	}
	for i := range n {
		t.sources = append(t.sources, lab.AddrIn(all, first+i))
	}
	return t
}

// The ranges of addresses. All but the one of Services are in
// stage.ClusterCIDR, and none is in lab.PodRanges.
var (
	serviceRange  = lab.ServiceRanges()[0]
	endpointRange = netip.MustParsePrefix("10.128.0.0/10") // of the server
	nodeClients   = netip.MustParsePrefix("10.208.0.0/13") // of the node
	podClients    = netip.MustParsePrefix("10.216.0.0/13") // of the pod
	clients       = netip.MustParsePrefix("10.208.0.0/12") // of both
)

// place is a node with a pod and a server.
type place struct{ node, pod, server *lab.Namespace }

// newPlace adds a pod and a server to a node, and connects the three.
func newPlace(l *lab.Lab, node *lab.Pod) (*place, error) {
	pod, err := l.Node2.AddPod(node.Name + "-pod")
	if err != nil {
		return nil, err
	}
	server, err := l.Node2.AddPod(node.Name + "-server")
	if err != nil {
		return nil, err
	}
	p := &place{node: node.Namespace, pod: pod.Namespace, server: server.Namespace}
	served := []netip.Prefix{endpointRange, serviceRange, balancerRange}
	err = errors.Join(
		p.node.SetSysctl("net.ipv4.ip_forward", "1"),
		p.server.Own(endpointRange), p.node.Own(nodeClients), p.pod.Own(podClients),
		lab.Wire(p.node, p.server, "to-node", "to-server", served, []netip.Prefix{clients}),
		lab.Wire(p.node, p.pod, "to-node", "to-pod", []netip.Prefix{podClients}, served))
	if err != nil {
		return nil, fmt.Errorf("links of %s: %w", node.Name, err)
	}
	return p, nil
}
