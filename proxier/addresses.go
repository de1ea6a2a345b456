package proxier

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// localAddresses calls report with the addresses of this node
// (cluster.Node.LocalIPs).
type localAddresses struct {
	report func([]netip.Addr)
	// listAll returns all addresses. If the error is
	// netlink.ErrDumpInterrupted, they can be incomplete.
	listAll func() ([]netlink.Addr, error)
	// wait returns after a change since the last call, or since the start. It
	// returns an error after release.
	wait    func() error
	release func()
}

// watchLocalAddresses calls report with the addresses of this node, once before
// it returns and, while run runs, after each change. It works in the network
// namespace of the calling thread.
func watchLocalAddresses(report func([]netip.Addr)) (*localAddresses, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE) // others, such as xfrm, may be missing
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	changes, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("follow addresses: %w", err)
	}
	a := &localAddresses{
		report:  report,
		listAll: func() ([]netlink.Addr, error) { return handle.AddrList(nil, netlink.FAMILY_ALL) },
		wait: func() error {
			_, _, err := changes.Receive()
			if errors.Is(err, unix.ENOBUFS) { // messages were lost
				return nil
			}
			return err
		},
		release: func() {
			handle.Close()
			changes.Close()
		},
	}
	if err := a.start(); err != nil {
		a.release()
		return nil, err
	}
	return a, nil
}

// start calls report for the first time. If the kernel interrupts each list of
// addresses, start uses an incomplete one; run lists the addresses again.
func (a *localAddresses) start() error {
	ips, err := a.list()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return err
	}
	if err != nil {
		klog.ErrorS(err, "NodePorts may not listen on all addresses yet", "addresses", ips, "retryAfter", relistPeriod)
	}
	a.report(ips)
	return nil
}

// Close ends the connections to the kernel, after run has returned.
func (a *localAddresses) Close() error {
	a.release()
	return nil
}

const (
	// relistPeriod is the interval between lists of addresses if no change is
	// seen.
	relistPeriod = 30 * time.Second
	// addressSettle is the time between a change and the list that follows, so
	// that one list covers several changes.
	addressSettle = 10 * time.Millisecond
	// listTries is how often addresses are listed until a list is not
	// interrupted.
	listTries = 5
)

// run calls report after every change until ctx ends. What it starts ends with
// Close.
func (a *localAddresses) run(ctx context.Context) {
	changed := make(chan struct{}, 1)
	go a.follow(ctx, changed)
	relist := time.NewTicker(relistPeriod)
	defer relist.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			time.Sleep(addressSettle)
			select {
			case <-changed:
			default:
			}
		case <-relist.C:
		}
		a.relist()
	}
}

// follow sends to changed after changes, unless it is full.
func (a *localAddresses) follow(ctx context.Context, changed chan<- struct{}) {
	for {
		err := a.wait()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			klog.ErrorS(err, "Changes of addresses are detected late", "period", relistPeriod)
			select {
			case <-ctx.Done():
				return
			case <-time.After(relistPeriod):
			}
		}
		signal(changed)
	}
}

// relist calls report. If the addresses cannot be listed, NodePorts keep those
// that they listen on.
func (a *localAddresses) relist() {
	ips, err := a.list()
	if err != nil {
		klog.ErrorS(err, "Failed to list addresses; NodePorts keep listening on the known ones", "retryAfter",
			relistPeriod)
		return
	}
	a.report(ips)
}

// list returns the addresses of this node. The kernel interrupts a list during
// which an address changes; list then tries again. If each try is interrupted,
// it returns the addresses of the last one, which can be incomplete, and
// netlink.ErrDumpInterrupted.
func (a *localAddresses) list() ([]netip.Addr, error) {
	var all []netlink.Addr
	var err error
	for range listTries {
		if all, err = a.listAll(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("list addresses: %w", err)
	}
	return localIPs(all), err
}

// localIPs returns addresses, sorted and without link-local ones.
func localIPs(all []netlink.Addr) []netip.Addr {
	var ips []netip.Addr
	for _, addr := range all {
		ip, ok := netip.AddrFromSlice(addr.IP)
		ip = ip.Unmap()
		if ok && !ip.IsLinkLocalUnicast() {
			ips = append(ips, ip)
		}
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return slices.Compact(ips)
}

// within returns the addresses that are in one of the prefixes. A prefix of all
// addresses does not count: NodePorts listen there without a list.
func within(ips []netip.Addr, cidrs []netip.Prefix) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(ips), func(ip netip.Addr) bool {
		return !slices.ContainsFunc(cidrs, func(p netip.Prefix) bool { return p.Bits() > 0 && p.Contains(ip) })
	})
}
