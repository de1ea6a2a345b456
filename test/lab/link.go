package lab

import (
	"errors"
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
	bridge string // of ns, which the interface joins; may be empty
}

// connect creates a cable (a veth pair), sets both ends up and waits until
// both carry packets. The interfaces never appear in another namespace.
func connect(a, b end) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = a.name
	veth := netlink.NewVeth(attrs)
	veth.PeerName = b.name
	veth.PeerNamespace = netlink.NsFd(b.ns.Fd())
	what := fmt.Sprintf("add veth %s with peer %s in %s", a.name, b.name, b.ns.Name)
	if err := a.ns.change(what, func() error { return netlink.LinkAdd(veth) }); err != nil {
		return err
	}
	for _, e := range []end{a, b} {
		if e.bridge != "" {
			if err := e.ns.join(e.name, e.bridge); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(a.ns.setUp(a.name), b.ns.setUp(b.name)); err != nil {
		return err
	}
	return errors.Join(a.ns.awaitUp(a.name), b.ns.awaitUp(b.name))
}

// addBridge creates a bridge and sets it up. It carries packets once it has a
// port.
func (n *Namespace) addBridge(name string) error {
	// No router queries these networks, and a snooping bridge may hold back
	// neighbour discovery.
	snooping := false
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	// By default a bridge has the hardware address of a port and changes it
	// with its ports. Neighbours would go on sending to the old address.
	attrs.HardwareAddr = hardwareAddr(n.lab.prefix + "/" + n.Name + "/" + name)
	bridge := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}
	add := n.change("add bridge "+name, func() error { return netlink.LinkAdd(bridge) })
	return errors.Join(add, n.setUp(name))
}

func (n *Namespace) join(port, bridge string) error {
	return n.withLink(port, "join bridge "+bridge, func(link netlink.Link) error {
		master, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(link, master)
	})
}

func (n *Namespace) setUp(name string) error { return n.withLink(name, "set up", netlink.LinkSetUp) }

func (n *Namespace) removeLink(name string) error { return n.withLink(name, "remove", netlink.LinkDel) }

// awaitUp waits until an interface carries packets. The kernel detects the
// carrier asynchronously, and loses packets until then.
func (n *Namespace) awaitUp(name string) error {
	return n.await("carrier of "+name, func() (up bool, err error) {
		err = n.withLink(name, "carrier", func(link netlink.Link) error {
			up = link.Attrs().OperState == netlink.OperUp
			return nil
		})
		return up, err
	})
}

func (n *Namespace) hardwareAddrOf(name string) (addr net.HardwareAddr, err error) {
	err = n.withLink(name, "hardware address", func(link netlink.Link) error {
		addr = link.Attrs().HardwareAddr
		return nil
	})
	return addr, err
}

// withLink calls f in the namespace with the interface of that name. The
// error names the action.
func (n *Namespace) withLink(name, action string, f func(netlink.Link) error) error {
	return n.change(fmt.Sprintf("interface %s: %s", name, action), func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return f(link)
	})
}

// change calls f in the namespace. The error names the action.
func (n *Namespace) change(action string, f func() error) error {
	if err := n.Do(f); err != nil {
		return fmt.Errorf("namespace %s: %s: %w", n.Name, action, err)
	}
	return nil
}

// await waits until done returns true. It is for what the kernel does
// asynchronously.
func (n *Namespace) await(what string, done func() (bool, error)) error {
	const patience = 10 * time.Second
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Microsecond) {
		if ok, err := done(); ok || err != nil {
			return err
		}
	}
	return fmt.Errorf("namespace %s: no %s after %v", n.Name, what, patience)
}

// hardwareAddr derives a locally administered unicast address from a name.
func hardwareAddr(name string) net.HardwareAddr {
	hash := fnv.New64a()
	hash.Write([]byte(name))
	addr := net.HardwareAddr(hash.Sum(nil)[:6])
	addr[0] = addr[0]&0xfc | 0x02
	return addr
}
