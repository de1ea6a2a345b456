package proxier

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"k8s.io/klog/v2"
)

// localAddresses follows which addresses of this node are within Config.NodePortAddresses.
type localAddresses struct {
	cidrs   []netip.Prefix
	handle  *netlink.Handle
	updates chan netlink.AddrUpdate
	done    chan struct{}
	tell    func([]netip.Addr)
}

// watchLocalAddresses tells the addresses on which NodePorts listen, now and, while run runs, whenever they change. It works
// in the network namespace of the calling thread. It returns nil where no such list is needed: NodePorts listen on the primary addresses,
// or on all.
func watchLocalAddresses(config *Config, tell func([]netip.Addr)) (*localAddresses, error) {
	cidrs := slices.DeleteFunc(slices.Clone(config.NodePortAddresses.CIDRs), func(p netip.Prefix) bool { return p.Bits() == 0 })
	if len(cidrs) == 0 {
		return nil, nil
	}
	a := &localAddresses{cidrs: cidrs, updates: make(chan netlink.AddrUpdate, 64), done: make(chan struct{}), tell: tell}
	var err error
	if a.handle, err = netlink.NewHandle(); err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	err = netlink.AddrSubscribeWithOptions(a.updates, a.done, netlink.AddrSubscribeOptions{
		ErrorCallback:     func(err error) { klog.ErrorS(err, "Following the addresses of this node failed") },
		ReceiveBufferSize: 1 << 20,
	})
	if err != nil {
		a.handle.Close()
		return nil, fmt.Errorf("follow addresses: %w", err)
	}
	if err := a.list(); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

func (a *localAddresses) close() {
	close(a.done)
	a.handle.Close()
}

// relistPeriod is how often addresses are listed even if no change was seen: a message of the kernel can be lost.
const relistPeriod = 30 * time.Second

// run tells every change until ctx ends.
func (a *localAddresses) run(ctx context.Context) {
	relist := time.NewTicker(relistPeriod)
	defer relist.Stop()
	updates := a.updates
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-updates:
			if !ok {
				updates = nil // the kernel's messages end; relist goes on
			}
		case <-relist.C:
		}
		if err := a.list(); err != nil {
			klog.ErrorS(err, "NodePorts keep the addresses that they listen on")
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
