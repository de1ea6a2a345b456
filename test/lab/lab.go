package lab

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
)

// Config says how a lab is made. The zero value is a lab without names.
type Config struct {
	// Prefix begins the names of the lab's namespaces ("demo" in "demo.node1").
	// Lower-case letters, digits and hyphens; empty: a random one.
	Prefix string
	// Named gives each namespace a name under /run/netns, so that people can use
	// `ip netns exec PREFIX.node1 COMMAND`. Where that folder cannot be made the
	// lab works without, see [Lab.NameError].
	Named bool
}

// Lab is a running cluster network. Its methods may be called concurrently.
type Lab struct {
	// Client is outside the cluster.
	Client *Namespace
	// Node1 and Node2 are the nodes. Both forward packets.
	Node1, Node2 *Node

	prefix string
	names  *names // nil when the lab has no names
	wire   *Namespace

	mu         sync.Mutex
	namespaces []*Namespace // in order of creation, those that are not closed
	nameErr    error
}

// New makes a lab. The error tells what the kernel refused; nothing is left
// behind then.
func New(config Config) (*Lab, error) {
	prefix := config.Prefix
	if prefix == "" {
		prefix = randomPrefix()
	}
	if !regexp.MustCompile(`^[a-z0-9-]{1,32}$`).MatchString(prefix) {
		return nil, fmt.Errorf("lab: prefix %q: want lower-case letters, digits and hyphens", prefix)
	}
	l := &Lab{prefix: prefix}
	if config.Named {
		names, err := claimNames(prefix)
		if err != nil {
			return nil, fmt.Errorf("lab %s: %w", prefix, err)
		}
		l.names = names
	}
	if err := l.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("lab %s: %w", prefix, err), l.Close())
	}
	return l, nil
}

// Prefix is what the names of the lab's namespaces begin with.
func (l *Lab) Prefix() string { return l.prefix }

// NameError tells why a lab that was to be named has no names: the first error
// of making them. It is nil for a lab that has its names or was to have none.
func (l *Lab) NameError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nameErr
}

// Nodes returns both nodes.
func (l *Lab) Nodes() []*Node { return []*Node{l.Node1, l.Node2} }

// Close ends the servers and the processes of the lab and removes its
// namespaces with everything in them. It is safe to call again.
func (l *Lab) Close() error {
	l.mu.Lock()
	namespaces := slices.Clone(l.namespaces)
	l.mu.Unlock()
	var errs []error
	for _, ns := range slices.Backward(namespaces) {
		errs = append(errs, ns.close())
	}
	if l.names != nil {
		errs = append(errs, l.names.release())
	}
	return errors.Join(errs...)
}

func (l *Lab) build() error {
	var err error
	if l.wire, err = l.newSwitch(); err != nil {
		return err
	}
	if l.Client, err = l.newClient(); err != nil {
		return err
	}
	plans := nodePlans()
	if l.Node1, err = l.newNode(plans[0]); err != nil {
		return err
	}
	if l.Node2, err = l.newNode(plans[1]); err != nil {
		return err
	}
	for _, pair := range [][2]*Node{{l.Node1, l.Node2}, {l.Node2, l.Node1}} {
		if err := pair[0].routePodsOf(pair[1]); err != nil {
			return err
		}
		if err := l.Client.routePodsOf(pair[0]); err != nil {
			return err
		}
	}
	return l.RouteServicesVia(l.Client, l.Node1)
}

// RouteServicesVia makes from (the client, or a node that has no proxy of its
// own) send packets for ServiceRanges and ExternalRanges to that node.
func (l *Lab) RouteServicesVia(from *Namespace, node *Node) error {
	for _, prefix := range slices.Concat(ServiceRanges(), ExternalRanges()) {
		if err := from.ReplaceRoute(prefix, node.addrLike(prefix.Addr())); err != nil {
			return err
		}
	}
	return nil
}

// newClient makes the namespace of the client and plugs it into the switch.
func (l *Lab) newClient() (*Namespace, error) {
	ns, err := l.newNamespace("client")
	if err != nil {
		return nil, err
	}
	ns.IPv4, ns.IPv6 = clientAddrs()
	if err := l.plug(ns); err != nil {
		return nil, err
	}
	return ns, ns.swallow(uplink)
}

func (l *Lab) setNameError(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nameErr == nil {
		l.nameErr = err
	}
}

// remember adds a namespace to those that Close removes.
func (l *Lab) remember(ns *Namespace) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.ContainsFunc(l.namespaces, func(other *Namespace) bool { return other.Name == ns.Name }) {
		return errors.New("the name is in use")
	}
	l.namespaces = append(l.namespaces, ns)
	return nil
}

func (l *Lab) forget(ns *Namespace) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.namespaces = slices.DeleteFunc(l.namespaces, func(other *Namespace) bool { return other == ns })
}

func randomPrefix() string {
	var random [4]byte
	rand.Read(random[:]) // never fails: crypto/rand ends the process instead
	return "lab" + hex.EncodeToString(random[:])
}
