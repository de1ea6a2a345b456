package proxier

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// addressSource is where localAddresses gets addresses from.
type addressSource interface {
	// list returns all addresses. If the error is netlink.ErrDumpInterrupted,
	// they can be incomplete.
	list() ([]netlink.Addr, error)
	// subscribe sends every change to updates until done is closed. It closes
	// updates when a change is lost.
	subscribe(updates chan<- netlink.AddrUpdate, done <-chan struct{}) error
	// close releases what the source holds.
	close()
}

// kernelAddresses is the addressSource of a network namespace.
type kernelAddresses struct {
	// namespace is nil for the namespace of the process. To enter another one
	// requires CAP_SYS_ADMIN, which a container does not need to have.
	namespace *netns.NsHandle
	handle    *netlink.Handle
}

// openKernelAddresses returns the source of the network namespace of the
// calling thread.
func openKernelAddresses() (*kernelAddresses, error) {
	k := &kernelAddresses{}
	var err error
	if k.namespace, err = otherNamespace(); err != nil {
		return nil, fmt.Errorf("follow addresses: %w", err)
	}
	if k.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil { // others, such as xfrm, may be missing
		k.close()
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	return k, nil
}

// otherNamespace returns the network namespace of the calling thread, nil if it
// is the namespace of the process.
func otherNamespace() (*netns.NsHandle, error) {
	namespace, err := netns.Get()
	if err != nil {
		return nil, err
	}
	process, err := netns.GetFromPid(os.Getpid())
	if err == nil && namespace.Equal(process) {
		err = namespace.Close()
		return nil, errors.Join(err, process.Close())
	}
	if err == nil {
		err = process.Close()
	}
	return &namespace, err
}

func (k *kernelAddresses) list() ([]netlink.Addr, error) {
	return k.handle.AddrList(nil, netlink.FAMILY_ALL)
}

func (k *kernelAddresses) subscribe(updates chan<- netlink.AddrUpdate, done <-chan struct{}) error {
	return netlink.AddrSubscribeWithOptions(updates, done, netlink.AddrSubscribeOptions{
		Namespace:         k.namespace,
		ErrorCallback:     func(err error) { klog.V(2).InfoS("Lost the subscription to address changes", "err", err) },
		ReceiveBufferSize: 1 << 20,
	})
}

func (k *kernelAddresses) close() {
	if k.handle != nil {
		k.handle.Close()
	}
	if k.namespace != nil {
		k.namespace.Close()
	}
}

// localAddresses calls report with the addresses of this node
// (cluster.Node.LocalIPs).
type localAddresses struct {
	idle
	source addressSource
	report func([]netip.Addr)
	// updates and done belong to the subscription. They are nil if there is
	// none.
	updates chan netlink.AddrUpdate
	done    chan struct{}
}

// watchLocalAddresses calls report with the addresses of this node, once before
// it returns and, while run runs, after each change. It works in the network
// namespace of the calling thread.
func watchLocalAddresses(report func([]netip.Addr)) (*localAddresses, error) {
	source, err := openKernelAddresses()
	if err != nil {
		return nil, err
	}
	a := &localAddresses{source: source, report: report}
	if err := a.start(); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// start subscribes to changes and calls report for the first time. If the
// kernel interrupts each list of addresses, start uses an incomplete one; run
// lists the addresses again.
func (a *localAddresses) start() error {
	if err := a.subscribe(); err != nil {
		return err
	}
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

// subscribe subscribes to changes of addresses.
func (a *localAddresses) subscribe() error {
	updates, done := make(chan netlink.AddrUpdate, 64), make(chan struct{})
	if err := a.source.subscribe(updates, done); err != nil {
		return fmt.Errorf("follow addresses: %w", err)
	}
	a.updates, a.done = updates, done
	return nil
}

// unsubscribe ends the subscription, if there is one.
func (a *localAddresses) unsubscribe() {
	if a.done != nil {
		close(a.done)
	}
	a.updates, a.done = nil, nil
}

func (a *localAddresses) close() error {
	a.unsubscribe()
	a.source.close()
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

// run calls report after every change until ctx ends.
func (a *localAddresses) run(ctx context.Context) {
	relist := time.NewTicker(relistPeriod)
	defer relist.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-a.updates:
			time.Sleep(addressSettle)
			if !ok || !drain(a.updates) {
				a.unsubscribe()
			}
		case <-relist.C:
		}
		a.relist()
	}
}

// relist renews the subscription if it was lost, and calls report. If the
// addresses cannot be listed, NodePorts keep those that they listen on.
func (a *localAddresses) relist() {
	if a.updates == nil {
		if err := a.subscribe(); err != nil {
			klog.ErrorS(err, "Changes of addresses are detected late", "retryAfter", relistPeriod)
		}
	}
	ips, err := a.list()
	if err != nil {
		klog.ErrorS(err, "Failed to list addresses; NodePorts keep listening on the known ones", "retryAfter",
			relistPeriod)
		return
	}
	a.report(ips)
}

// drain receives until the channel is empty. It reports whether the channel is
// still open.
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

// list returns the addresses of this node. The kernel
// interrupts a list during which an address changes; list then tries again. If
// each try is interrupted, it returns the addresses of the last one, which can
// be incomplete, and netlink.ErrDumpInterrupted.
func (a *localAddresses) list() ([]netip.Addr, error) {
	var all []netlink.Addr
	var err error
	for range listTries {
		if all, err = a.source.list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("list addresses: %w", err)
	}
	return localIPs(all), err
}

// localIPs returns addresses, sorted and without loopback and link-local ones.
func localIPs(all []netlink.Addr) []netip.Addr {
	var ips []netip.Addr
	for _, addr := range all {
		ip, ok := netip.AddrFromSlice(addr.IP)
		ip = ip.Unmap()
		if ok && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
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
