package packet

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/listing"
)

// Rules pass a number to the next rule in the priority of the packet, which nft
// writes as a class of traffic control. These tests show that rules do not take
// the priority of another program for such a number, and that the number does
// not leave the node.

// priorityServices are Services whose rules pass numbers of all kinds: one of
// some targets, one of all targets, and ids of session affinity.
const priorityServices = `
name: cluster
spec: {type: LoadBalancer, externalIPs: [free]}
endpoints: near2 a1 b1
expect: |
  near1 near3 pod1 node1 -> clusterIP => near2 a1 b1 as itself
  near1 pod1 client -> externalIP nodePort@node1 => near2 a1 b1 as node1
---
name: local
spec: {type: LoadBalancer, externalIPs: [free], externalTrafficPolicy: Local}
endpoints: near2 b1 b2
expect: |
  near1 near3 pod1 -> loadBalancerIP nodePort@node1 => near2 b1 b2 as itself
  node1 -> loadBalancerIP nodePort@node1 => near2 b1 b2 as node1
  client -> loadBalancerIP => near2 as itself
---
name: sticky
spec: {type: LoadBalancer, externalIPs: [free], sessionAffinity: ClientIP}
endpoints: b1
expect: |
  near1 pod1 node1 -> clusterIP => b1 as itself
`

// watch is a table that sees packets to Services behind all rules of the proxy.
// It records the clients of first packets, those of first packets with a
// priority, and the priorities of later packets. Its chain other is that of a
// program that masquerades before nat-postrouting, which the kernel does not
// call then: of chains with the same priority, it calls the latest one first.
const watch = `table FAMILY watch {
	set first { type TYPE; flags dynamic; }
	set leaked { type TYPE . classid; flags dynamic; }
	set later { type TYPE . classid; flags dynamic; }
	chain other {
		type nat hook postrouting priority 100;
		meta mark & 0x4000 != 0 masquerade
	}
	chain leaving {
		type filter hook postrouting priority 300;
		ct status dnat ct state new add @first { FAMILY saddr }
		ct status dnat ct state new meta priority != none add @leaked { FAMILY saddr . meta priority }
		ct status dnat ct state established ct direction original meta priority != none \
			add @later { FAMILY saddr . meta priority }
	}
}
`

// TestPriority shows that the priority with which rules pass a drawn target
// does not leave the node with first packets: local ones, forwarded ones and
// those of a bridge. A program keeps its own priority for later packets.
func TestPriority(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.addBridgedPods("near1", "near2", "near3")
	for _, names := range []string{"FAMILY ip TYPE ipv4_addr", "FAMILY ip6 TYPE ipv6_addr"} {
		c.nft(t, strings.NewReplacer(strings.Fields(names)...).Replace(watch))
	}
	link := c.addQueues(t)
	services := c.apply(priorityServices)
	c.settle()
	for _, s := range services {
		c.checks(s, s.Expect).run(t)
	}
	for _, f := range bothFamilies() {
		to := c.destination(services[0], "clusterIP", f)
		conn, result := lab.Open(t.Context(), c.Node1.Namespace, "tcp", to, lab.ProbeOptions{Priority: 5})
		if conn == nil {
			t.Fatalf("connection with a priority to %s: %v", to, result)
		}
		conn.Ask(t.Context())
		conn.Close()

		set := func(name string) string {
			return c.nft(t, "list set "+[...]string{"ip", "ip6"}[f]+" watch "+name)
		}
		for _, from := range []string{"near1", "pod1", "node1", "client"} {
			if first := set("first"); !strings.Contains(first, c.origin(from).source(f).String()) {
				t.Errorf("got no first packet of %s: %s", from, first)
			}
		}
		if leaked := set("leaked"); strings.Contains(leaked, "elements") {
			t.Errorf("first packets leave with a priority: %s", leaked)
		}
		if later := set("later"); !strings.Contains(later, " . 0:5") {
			t.Errorf("want later packets with the priority of their program: %s", later)
		}
	}
	c.expectDefaultQueue(t, link)
}

// nft runs a script of nft in node1.
func (c *cluster) nft(t testing.TB, script string) string {
	t.Helper()
	out, err := listing.Run(t.Context(), c.Node1.Namespace, script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The link of node1 has an HTB queueing discipline. It would put a packet with
// the priority 100:2 into the queue of this name. Rules pass such numbers if
// they draw one of all targets under externalTrafficPolicy Local.
const (
	queues       = 0x100
	defaultQueue = 0x99
)

// addQueues adds the queueing discipline and returns the link, nil if the
// kernel does not have HTB.
func (c *cluster) addQueues(t *testing.T) (link netlink.Link) {
	t.Helper()
	err := c.Node1.Do(func() (err error) {
		if link, err = netlink.LinkByName("eth0"); err != nil {
			return err
		}
		index, root := link.Attrs().Index, netlink.MakeHandle(queues, 0)
		htb := netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: index, Handle: root, Parent: netlink.HANDLE_ROOT})
		htb.Defcls = defaultQueue
		errs := []error{netlink.QdiscAdd(htb)}
		for _, minor := range []uint16{1, 2, 3, defaultQueue} {
			attrs := netlink.ClassAttrs{LinkIndex: index, Handle: netlink.MakeHandle(queues, minor), Parent: root}
			errs = append(errs, netlink.ClassAdd(netlink.NewHtbClass(attrs, netlink.HtbClassAttrs{Rate: 1 << 30})))
		}
		return errors.Join(errs...)
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		t.Log("the kernel does not have HTB")
		return nil
	case err != nil:
		t.Fatal(err)
	}
	return link
}

// expectDefaultQueue expects that all packets were in the default queue.
func (c *cluster) expectDefaultQueue(t *testing.T, link netlink.Link) {
	t.Helper()
	if link == nil {
		return
	}
	err := c.Node1.Do(func() error {
		classes, err := netlink.ClassList(link, netlink.HANDLE_NONE)
		if len(classes) != 4 {
			t.Errorf("got %d queues, want 4", len(classes))
		}
		for _, class := range classes {
			attrs := class.Attrs()
			_, minor := netlink.MajorMinor(attrs.Handle)
			if packets := attrs.Statistics.Basic.Packets; (packets > 0) != (minor == defaultQueue) {
				t.Errorf("queue %s: got %d packets", netlink.HandleStr(attrs.Handle), packets)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestOwnPriority shows that packets which are not for a Service do not enter
// chains of Services, although the class of one is their priority: of local
// packets because their socket has it, of forwarded packets because a rule sets
// it.
func TestOwnPriority(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.serve("{name: web, spec: {type: LoadBalancer, externalIPs: [free]}, endpoints: a1 a2 b1}")
	c.nft(t, "table inet own { chain before { type filter hook prerouting priority -300; }; }")
	// balance-3, external-3, nodeport-3, reject-no-endpoints
	for _, priority := range []int{0x00000003, 0x01000003, 0x03000003, 0x0f000001} {
		class := fmt.Sprintf("%x:%x", priority>>16, priority&0xffff)
		c.nft(t, "flush chain inet own before; add rule inet own before meta priority set "+class)
		for _, from := range []string{"node1", "pod1"} {
			for _, network := range []string{"tcp", "udp"} {
				for _, addr := range c.pods["b2"].Addrs() {
					c.expectUntouched(t, from, network, netip.AddrPortFrom(addr, firstTarget), priority)
				}
			}
		}
	}
}

// expectUntouched connects with a priority, and expects that the server sees
// the address and port of the client: a masqueraded packet has another port.
func (c *cluster) expectUntouched(t *testing.T, from, network string, to netip.AddrPort, priority int) {
	t.Helper()
	options := lab.ProbeOptions{NewPort: true, Priority: priority}
	conn, result := lab.Open(t.Context(), c.origin(from).Namespace, network, to, options)
	if conn == nil {
		t.Errorf("%s from %s to %s with priority %#x: %v", network, from, to, priority, result)
		return
	}
	defer conn.Close()
	if got, want := result.Answer.Source.String(), conn.LocalAddr().String(); got != want {
		t.Errorf("%s from %s to %s with priority %#x: got source %s", network, want, to, priority, got)
	}
}
