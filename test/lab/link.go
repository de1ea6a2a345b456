package lab

import (
	"fmt"
	"hash/fnv"
	"net"
	"time"

	"github.com/vishvananda/netlink"
)

// end is one end of a cable between two namespaces.
type end struct {
	ns     *Namespace
	name   string // of the interface
	bridge string // in the same namespace, that the interface joins; may be empty
}

// connect lays a cable (a veth pair), sets both ends up and waits until both
// carry packets. No other namespace ever sees the interfaces.
func connect(a, b end) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = a.name
	veth := netlink.NewVeth(attrs)
	veth.PeerName = b.name
	veth.PeerNamespace = netlink.NsFd(b.ns.Fd())
	if err := a.ns.Do(func() error { return netlink.LinkAdd(veth) }); err != nil {
		return fmt.Errorf("add veth %s in %s, %s in %s: %w", a.name, a.ns.Name, b.name, b.ns.Name, err)
	}
	for _, e := range []end{a, b} {
		if e.bridge != "" {
			if err := e.ns.join(e.name, e.bridge); err != nil {
				return err
			}
		}
		if err := e.ns.setUp(e.name); err != nil {
			return err
		}
	}
	for _, e := range []end{a, b} {
		if err := e.ns.awaitUp(e.name); err != nil {
			return err
		}
	}
	return nil
}

// addBridge makes a bridge and sets it up. It carries packets once it has a port.
func (n *Namespace) addBridge(name string) error {
	snooping := false // nobody queries here, and a snooping bridge may hold back neighbour discovery
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	// Without an address of its own a bridge takes that of a port and changes it
	// as ports come and go: neighbours would go on sending to the old one.
	attrs.HardwareAddr = hardwareAddr(n.lab.prefix + "/" + n.Name + "/" + name)
	bridge := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}
	if err := n.Do(func() error { return netlink.LinkAdd(bridge) }); err != nil {
		return fmt.Errorf("add bridge %s in %s: %w", name, n.Name, err)
	}
	return n.setUp(name)
}

func (n *Namespace) join(port, bridge string) error {
	link, err := n.link(port)
	if err != nil {
		return err
	}
	master, err := n.link(bridge)
	if err != nil {
		return err
	}
	if err := n.Do(func() error { return netlink.LinkSetMaster(link, master) }); err != nil {
		return fmt.Errorf("namespace %s: join %s to bridge %s: %w", n.Name, port, bridge, err)
	}
	return nil
}

func (n *Namespace) setUp(name string) error {
	link, err := n.link(name)
	if err != nil {
		return err
	}
	if err := n.Do(func() error { return netlink.LinkSetUp(link) }); err != nil {
		return fmt.Errorf("namespace %s: set %s up: %w", n.Name, name, err)
	}
	return nil
}

// awaitUp waits until an interface carries packets: the kernel notices the
// carrier a moment later, and loses packets that are sent before.
func (n *Namespace) awaitUp(name string) error {
	return n.await("carrier of "+name, func() (bool, error) {
		link, err := n.link(name)
		return err == nil && link.Attrs().OperState == netlink.OperUp, err
	})
}

// await waits until the kernel has done what it does in the background.
func (n *Namespace) await(what string, done func() (bool, error)) error {
	const patience = 10 * time.Second
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Microsecond) {
		if ok, err := done(); ok || err != nil {
			return err
		}
	}
	return fmt.Errorf("namespace %s: no %s after %v", n.Name, what, patience)
}

func (n *Namespace) removeLink(name string) error {
	link, err := n.link(name)
	if err != nil {
		return err
	}
	if err := n.Do(func() error { return netlink.LinkDel(link) }); err != nil {
		return fmt.Errorf("namespace %s: remove %s: %w", n.Name, name, err)
	}
	return nil
}

func (n *Namespace) link(name string) (netlink.Link, error) {
	link, err := within(n, func() (netlink.Link, error) { return netlink.LinkByName(name) })
	if err != nil {
		return nil, fmt.Errorf("namespace %s: interface %s: %w", n.Name, name, err)
	}
	return link, nil
}

// hardwareAddr derives a locally administered unicast address from a name.
func hardwareAddr(name string) net.HardwareAddr {
	hash := fnv.New64a()
	hash.Write([]byte(name))
	addr := net.HardwareAddr(hash.Sum(nil)[:6])
	addr[0] = addr[0]&0xfc | 0x02
	return addr
}
