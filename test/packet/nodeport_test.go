package packet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// nodePortServices are services with different rules for NodePorts.
type nodePortServices struct{ web, none, local *service }

func newNodePortServices() nodePortServices {
	return nodePortServices{
		web:  &service{name: "web", spec: "type: NodePort", endpoints: "a1", number: 2},
		none: &service{name: "none", spec: "type: NodePort", number: 3},
		local: &service{name: "local", spec: "type: NodePort\nexternalTrafficPolicy: Local", endpoints: "a1",
			number: 4},
	}
}

func (s nodePortServices) all() []*service { return []*service{s.web, s.none, s.local} }

// checks expects NodePorts at the open places. At the closed ones the node's
// own servers at the same ports answer.
func (s nodePortServices) checks(c *cluster, open, closed string) checks {
	var todo checks
	expect := func(s *service, place, outcome string) {
		line := fmt.Sprintf("client pod1 pod2 node2 %s -> nodePort@%[1]s => %s", place, outcome)
		todo = append(todo, c.checks(s, line)...)
	}
	for _, place := range strings.Fields(open) {
		expect(s.web, place, "a1 as node1")
		expect(s.none, place, "refused")
		todo = append(todo, c.checks(s.local, "client -> nodePort@"+place+" => a1 as itself")...)
	}
	for _, place := range strings.Fields(closed) {
		for _, s := range s.all() {
			expect(s, place, "node1 as itself")
		}
	}
	for _, s := range s.all() {
		todo = append(todo, c.checks(s, "loopback -> nodePort@loopback => node1 as itself")...)
	}
	return todo
}

// newNodePortCluster creates a cluster whose node1 has the places lan and
// wan, and servers at the NodePorts.
func newNodePortCluster(t *testing.T, services nodePortServices) *cluster {
	c := newIdleCluster(t)
	c.addPlace("lan", c.Node1, pair("198.18.1.1", "2001:db8:181::1"))
	c.addPlace("wan", c.Node1, pair("198.18.2.1", "2001:db8:182::1"))
	c.addOrigin("loopback", c.Node1.Namespace, c.place("loopback"))
	for _, s := range services.all() {
		labtest.Serve(t, s.nodePort(0), c.Node1.Namespace)
	}
	return c
}

// TestNodePortAddresses shows the addresses of NodePorts, by
// --nodeport-addresses.
func TestNodePortAddresses(t *testing.T) {
	t.Parallel()
	services := newNodePortServices()
	c := newNodePortCluster(t, services)
	tests := []struct {
		name, addresses string
		open, closed    string // places
		short           bool   // runs also with -short, as on emulated machines
		extension       bool   // kube-proxy 1.36 does not accept it
	}{
		{"default", "", "node1", "lan wan", true, false},
		{"primary", "primary", "node1", "lan wan", false, false},
		{"all", "0.0.0.0/0,::/0", "node1 lan wan", "", true, false},
		{"keyword all", "all", "node1 lan wan", "", false, true},
		{"localhost", "localhost", "", "node1 lan wan", false, true},
		{"primary and localhost", "primary,localhost", "node1", "lan wan", false, true},
		{"primary and a range", "primary,198.18.1.0/24,2001:db8:181::/64", "node1 lan", "wan", true, true},
		{"one range", "198.18.1.0/24,2001:db8:181::/64", "lan", "node1 wan", false, false},
		{"ranges", "198.18.1.0/24,172.30.0.0/16,2001:db8:181::/64,fd00:30::/64", "node1 lan", "wan", true, false},
		{"one address", "198.18.2.1/32,2001:db8:182::1/128", "wan", "node1 lan", false, false},
		{"with loopback", "127.0.0.0/8,::1/128,198.18.2.0/24,2001:db8:182::/64", "wan", "node1 lan", false, false},
		{"no address", "192.168.0.0/24,fd00:999::/64", "", "node1 lan wan", false, false},
	}
	for _, test := range tests {
		if testing.Short() && !test.short || subject() != "" && test.extension {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			flags := defaultFlags()
			if test.addresses != "" {
				flags = append(flags, "--nodeport-addresses", test.addresses)
			}
			c.restart(flags...)
			c.serve("web", services.all()...)
			services.checks(c, test.open, test.closed).run(t)
		})
	}
}

// TestNodePortsFollowAddresses shows NodePorts when addresses of a node
// change while the proxy runs.
func TestNodePortsFollowAddresses(t *testing.T) {
	t.Parallel()
	services := newNodePortServices()
	c := newNodePortCluster(t, services)
	const addresses = "198.18.1.0/24,198.18.3.0/24,2001:db8:181::/64,2001:db8:183::/64"
	c.restart(append(defaultFlags(), "--nodeport-addresses", addresses)...)
	c.serve("web", services.all()...)
	services.checks(c, "lan", "node1 wan").run(t)

	late := pair("198.18.3.1", "2001:db8:183::1")
	c.addPlace("late", c.Node1, late)
	c.checks(services.web, "client pod1 -> nodePort@late => a1 as node1").await(t)
	services.checks(c, "lan late", "node1 wan").run(t)

	// The addresses move to the client.
	if err := c.Node1.RemoveInterface("late"); err != nil {
		t.Fatal(err)
	}
	for _, s := range services.all() {
		labtest.Serve(t, s.nodePort(0), c.Client)
	}
	c.addClient("late", late)
	c.checks(services.web, "pod1 node1 -> nodePort@late => client as itself").await(t)
	services.checks(c, "lan", "node1 wan").run(t)
}
