package random

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/test/lab"
)

// Ports of the servers of endpoints.
const (
	FirstTarget  = 8080
	SecondTarget = 8081
)

// SecondAddrs returns more addresses of node1. Services have them as external
// IPs.
func SecondAddrs() [2]netip.Addr {
	return [2]netip.Addr{netip.MustParseAddr("172.30.0.21"), netip.MustParseAddr("fd00:30::21")}
}

// AddPods adds the pods a1, a2, b1 and b2 to a lab, and servers to them and to
// the nodes. It returns the pods, and the addresses of all these endpoints, by
// name.
func AddPods(l *lab.Lab) (pods map[string]*lab.Pod, addrs map[string][2]netip.Addr, err error) {
	pods, addrs = map[string]*lab.Pod{}, map[string][2]netip.Addr{}
	spaces := []*lab.Namespace{l.Node1.Namespace, l.Node2.Namespace}
	for _, name := range []string{"a1", "a2", "b1", "b2"} {
		at := l.Node1
		if NodeOf(name) == l.Node2.Name {
			at = l.Node2
		}
		if pods[name], err = at.AddPod(name); err != nil {
			return nil, nil, err
		}
		spaces = append(spaces, pods[name].Namespace)
	}
	for _, at := range spaces {
		addrs[at.Name] = [2]netip.Addr(at.Addrs())
		for _, port := range []uint16{FirstTarget, SecondTarget} {
			if err := at.Serve(port); err != nil {
				return nil, nil, err
			}
		}
	}
	return pods, addrs, nil
}

// NodeOf returns the node of an endpoint, by its name.
func NodeOf(endpoint string) string {
	if endpoint[0] == 'b' || endpoint == "node2" {
		return "node2"
	}
	return "node1"
}
