package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// Lab is a running cluster network. Its methods can be called concurrently.
type Lab struct {
	// Client is outside the cluster.
	Client *Namespace
	// Node1 and Node2 are the nodes. Both forward packets.
	Node1, Node2 *Node

	name  string       // empty for a lab without names
	claim net.Listener // of the name; see claimName
	wire  *Namespace

	mu         sync.Mutex
	namespaces []*Namespace // the open ones, in order of creation
}

// New creates a lab. With a name, which consists of lower-case letters, digits
// and hyphens, each namespace has a name in /run/netns, for commands such as
// `ip netns exec NAME.node1`. New leaves nothing behind if it fails.
func New(name string) (*Lab, error) {
	l := &Lab{name: name}
	err := l.claimName()
	if err == nil {
		err = l.build()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lab %s: %w", name, err), l.Close())
	}
	return l, nil
}

// Nodes returns both nodes.
func (l *Lab) Nodes() []*Node { return []*Node{l.Node1, l.Node2} }

// Close ends the lab's servers and processes and removes its namespaces. It
// can be called more than once.
func (l *Lab) Close() error {
	l.mu.Lock()
	namespaces := slices.Clone(l.namespaces)
	l.mu.Unlock()
	var errs []error
	for _, ns := range slices.Backward(namespaces) {
		errs = append(errs, ns.Close())
	}
	if l.claim != nil {
		if err := l.claim.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (l *Lab) build() (err error) {
	if l.wire, err = l.newSwitch(); err != nil {
		return err
	}
	if l.Client, err = l.newClient(); err != nil {
		return err
	}
	for i, node := range []**Node{&l.Node1, &l.Node2} {
		if *node, err = l.newNode(i + 1); err != nil {
			return err
		}
	}
	throughNode1 := slices.Concat(l.Node1.PodRanges, ServiceRanges(), ExternalRanges())
	return errors.Join(
		l.Node1.routeTo(l.Node2, l.Node2.PodRanges), l.Node2.routeTo(l.Node1, l.Node1.PodRanges),
		l.Client.routeTo(l.Node1, throughNode1), l.Client.routeTo(l.Node2, l.Node2.PodRanges))
}

// uplink is the interface that joins a client, node or pod to the lab.
const uplink = "eth0"

const switchBridge = "br0"

// newSwitch creates the namespace with the bridge between client and nodes.
// It has no addresses and, without IPv6, sends no packets itself.
func (l *Lab) newSwitch() (*Namespace, error) {
	ns, err := l.newNamespace("switch")
	if err != nil {
		return nil, err
	}
	return ns, errors.Join(ns.SetSysctl("net.ipv6.conf.all.disable_ipv6", "1"),
		ns.SetSysctl("net.ipv6.conf.default.disable_ipv6", "1"), ns.addBridge(switchBridge))
}

// plug joins a namespace to the switch and adds its addresses.
func (l *Lab) plug(ns *Namespace) error {
	port := end{ns: l.wire, name: "to-" + ns.Name, bridge: switchBridge}
	return errors.Join(connect(end{ns: ns, name: uplink}, port),
		ns.AddAddr(netip.PrefixFrom(ns.IPv4, underlayBits4), netip.PrefixFrom(ns.IPv6, underlayBits6)))
}

func (l *Lab) newClient() (*Namespace, error) {
	ns, err := l.newNamespace("client")
	if err != nil {
		return nil, err
	}
	ns.IPv4, ns.IPv6 = netip.MustParseAddr("172.30.0.100"), netip.MustParseAddr("fd00:30::100")
	return ns, errors.Join(l.plug(ns), ns.dropUnroutable(uplink))
}

// add adds a namespace to those that Close removes.
func (l *Lab) add(ns *Namespace) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.ContainsFunc(l.namespaces, func(other *Namespace) bool { return other.Name == ns.Name }) {
		return errors.New("the name is in use")
	}
	l.namespaces = append(l.namespaces, ns)
	return nil
}

func (l *Lab) remove(ns *Namespace) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.namespaces = slices.DeleteFunc(l.namespaces, func(other *Namespace) bool { return other == ns })
}

// PodRanges returns the pod ranges of the cluster, IPv4 first.
func PodRanges() []netip.Prefix { return prefixes("10.244.0.0/16", "fd00:244::/32") }

// ServiceRanges returns the ranges of ClusterIPs, IPv4 first.
func ServiceRanges() []netip.Prefix { return prefixes("10.96.0.0/16", "fd00:96::/112") }

// ExternalRanges returns the ranges of external and LoadBalancer IPs, IPv4
// first.
func ExternalRanges() []netip.Prefix { return prefixes("192.0.2.0/24", "2001:db8::/64") }

func prefixes(ipv4, ipv6 string) []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix(ipv4), netip.MustParsePrefix(ipv6)}
}

// Prefix lengths of the network of client and nodes.
const (
	underlayBits4 = 24
	underlayBits6 = 64
)

// podGateway6 returns the IPv6 gateway of all pods. Unlike ARP, neighbour
// discovery answers only for addresses of the receiving interface. A
// link-local address does not become a node address.
func podGateway6() netip.Prefix { return netip.MustParsePrefix("fe80::1/64") }

// nodeAddrs returns the addresses and the pod ranges of a node.
func nodeAddrs(n int) (ipv4, ipv6 netip.Addr, pods []netip.Prefix) {
	return netip.MustParseAddr(fmt.Sprintf("172.30.0.1%d", n)), netip.MustParseAddr(fmt.Sprintf("fd00:30::1%d", n)),
		prefixes(fmt.Sprintf("10.244.%d.0/24", n), fmt.Sprintf("fd00:244:%d::/64", n))
}
