package proxier

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"k8s.io/klog/v2"
)

// localAddresses follows which addresses of this node are within Config.NodePortAddresses.
type localAddresses struct {
	cidrs     []netip.Prefix
	namespace netns.NsHandle
	handle    *netlink.Handle
	updates   chan netlink.AddrUpdate
	done      chan struct{}
	tell      func([]netip.Addr)
}

// watchLocalAddresses tells the addresses on which NodePorts listen, now and, while run runs, whenever they change. It works
// in the network namespace of the calling thread. It returns nil where no such list is needed: NodePorts listen on the primary addresses,
// or on all.
func watchLocalAddresses(config *Config, tell func([]netip.Addr)) (*localAddresses, error) {
	cidrs := slices.DeleteFunc(slices.Clone(config.NodePortAddresses.CIDRs), func(p netip.Prefix) bool { return p.Bits() == 0 })
	if len(cidrs) == 0 {
		return nil, nil
	}
	namespace, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("follow addresses: %w", err)
	}
	a := &localAddresses{cidrs: cidrs, namespace: namespace, done: make(chan struct{}), tell: tell}
	if a.handle, err = netlink.NewHandle(); err != nil {
		namespace.Close()
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	if err := errors.Join(a.subscribe(), a.list()); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// subscribe asks the kernel for a message about every change. The messages end when one is lost, and are to be asked for again.
func (a *localAddresses) subscribe() error {
	a.updates = make(chan netlink.AddrUpdate, 64)
	err := netlink.AddrSubscribeWithOptions(a.updates, a.done, netlink.AddrSubscribeOptions{
		Namespace:         &a.namespace,
		ErrorCallback:     func(err error) { klog.V(2).InfoS("Messages about addresses end", "err", err) },
		ReceiveBufferSize: 1 << 20,
	})
	if err != nil {
		return fmt.Errorf("follow addresses: %w", err)
	}
	return nil
}

func (a *localAddresses) close() {
	close(a.done)
	a.handle.Close()
	a.namespace.Close()
}

const (
	// relistPeriod is how often addresses are listed even if no change was seen.
	relistPeriod = 30 * time.Second
	// addressSettle is how long it waits for more changes before it lists addresses.
	addressSettle = 10 * time.Millisecond
)

// run tells every change until ctx ends.
func (a *localAddresses) run(ctx context.Context) {
	relist := time.NewTicker(relistPeriod)
	defer relist.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-a.updates:
			if !sleep(ctx, addressSettle) {
				return
			}
			if !ok || !drain(a.updates) {
				if err := a.subscribe(); err != nil {
					klog.ErrorS(err, "Changes of addresses are seen late", "period", relistPeriod)
					a.updates = nil
				}
			}
		case <-relist.C:
		}
		if err := a.list(); err != nil {
			klog.ErrorS(err, "NodePorts keep the addresses that they listen on")
		}
	}
}

// drain takes what is in the channel. It returns false if the channel was closed.
func drain(updates <-chan netlink.AddrUpdate) bool {
	for {
		select {
		case _, ok := <-updates:
			if !ok {
				return false
			}
		default:
			return true
		}
	}
}

// list tells the addresses that there are now.
func (a *localAddresses) list() error {
	all, err := a.handle.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	a.tell(within(all, a.cidrs))
	return nil
}

// within returns the addresses that are in one of the prefixes, but none of loopback, sorted.
func within(all []netlink.Addr, cidrs []netip.Prefix) []netip.Addr {
	var ips []netip.Addr
	for _, addr := range all {
		ip, ok := netip.AddrFromSlice(addr.IP)
		ip = ip.Unmap()
		if ok && !ip.IsLoopback() && slices.ContainsFunc(cidrs, func(p netip.Prefix) bool { return p.Contains(ip) }) {
			ips = append(ips, ip)
		}
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return slices.Compact(ips)
}
