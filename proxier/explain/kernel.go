package explain

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Kernel is the table of a family in the kernel, and the routes of the network
// namespace in which it was opened. It is a Source.
type Kernel struct {
	conn   *nft.Conn
	routes *netlink.Handle
	table  *nft.Table
}

// ErrNoTable is returned if the node has no table of a proxy.
var ErrNoTable = errors.New("does not exist: no proxy has run on this node, or not for this family")

// OpenKernel opens the table of a family. The error is for people if there is
// no table, or that of another program.
func OpenKernel(f nft.Family) (*Kernel, error) {
	conn, err := nft.Open()
	if err != nil {
		return nil, err
	}
	routes, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open netlink socket: %w", err), conn.Close())
	}
	k := &Kernel{conn: conn, routes: routes, table: &nft.Table{Family: f, Name: ruleset.TableName}}
	if err := k.check(); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// check returns an error if the table is not that of nftproxy, or not in use.
func (k *Kernel) check() error {
	found, ok, err := k.conn.FindTable(k.table)
	switch {
	case errors.Is(err, unix.EPERM):
		return errors.New("no permission to read the rules of the kernel: CAP_NET_ADMIN is required")
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("%s %w", k.table, ErrNoTable)
	case found.Flags&unix.NFT_TABLE_F_DORMANT != 0:
		return fmt.Errorf("%s is dormant: packets do not pass it", k.table)
	}
	set, err := k.conn.FindSet(k.table, ruleset.OwnSet)
	if err == nil && set == nil {
		return fmt.Errorf("%s belongs to kube-proxy or another program: it has no set %s", k.table, ruleset.OwnSet)
	}
	return err
}

// Close closes the connections to the kernel.
func (k *Kernel) Close() error {
	k.routes.Close()
	return k.conn.Close()
}

// Explain walks a hypothetical packet through the table. All rules and rows
// that it reads belong to one generation.
func (k *Kernel) Explain(q Query) (r *Result, err error) {
	_, err = k.conn.Snapshot(func() error {
		r, err = Explain(k, q)
		return err
	})
	return r, err
}

// BaseChain implements Source.
func (k *Kernel) BaseChain(point nft.HookPoint) (string, error) {
	name := ruleset.BaseChainName(point)
	found, ok, err := k.conn.FindChain(k.table, name)
	if err == nil && (!ok || found.Hook == nil || found.Hook.Point != point) {
		err = fmt.Errorf("%s has no chain %s at hook %s: another program changed it", k.table, name, point)
	}
	return name, err
}

// Rules implements Source.
func (k *Kernel) Rules(chain string) ([]nft.RuleExpressions, error) {
	return k.conn.RuleExpressions(k.table, chain)
}

// Set implements Source.
func (k *Kernel) Set(name string) (*nft.Set, error) {
	set, err := k.conn.FindSet(k.table, name)
	if err == nil && set == nil {
		err = fmt.Errorf("%s has no set %s", k.table, name)
	}
	return set, err
}

// Row implements Source.
func (k *Kernel) Row(set *nft.Set, key nft.Tuple) (nft.Row, error) {
	found, err := k.conn.FindRows(k.table, []nft.Row{{Set: set, Key: key}})
	if err != nil {
		return nft.Row{}, err
	}
	return found[0], nil
}

// RouteType implements Source. An address without a route has type
// RTN_UNREACHABLE.
func (k *Kernel) RouteType(addr netip.Addr) (uint32, error) {
	route, err := k.route(addr)
	switch {
	case isUnreachable(err):
		return unix.RTN_UNREACHABLE, nil
	case err != nil:
		return 0, err
	}
	return uint32(route.Type), nil
}

// Interface implements Source.
func (k *Kernel) Interface(addr netip.Addr) (string, error) {
	route, err := k.route(addr)
	if err != nil {
		return "", fmt.Errorf("find the interface on which packets from %s arrive: %w", addr, err)
	}
	link, err := k.routes.LinkByIndex(route.LinkIndex)
	if err != nil {
		return "", fmt.Errorf("find interface %d: %w", route.LinkIndex, err)
	}
	return link.Attrs().Name, nil
}

// NodeSource returns the source address of packets from this node to an
// address.
func (k *Kernel) NodeSource(to netip.Addr) (netip.Addr, error) {
	route, err := k.route(to)
	if isUnreachable(err) {
		return netip.Addr{}, fmt.Errorf("this node has no route to %s: connecting fails before any rule", to)
	}
	if err != nil {
		return netip.Addr{}, err
	}
	source, ok := netip.AddrFromSlice(route.Src)
	if !ok {
		return netip.Addr{}, fmt.Errorf("the route to %s has no source address", to)
	}
	return source.Unmap(), nil
}

func isUnreachable(err error) bool {
	for _, errno := range []unix.Errno{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// route returns the route of this node to an address.
func (k *Kernel) route(addr netip.Addr) (netlink.Route, error) {
	routes, err := k.routes.RouteGet(addr.AsSlice())
	if err != nil {
		return netlink.Route{}, fmt.Errorf("find the route to %s: %w", addr, err)
	}
	if len(routes) == 0 {
		return netlink.Route{}, fmt.Errorf("find the route to %s: no answer", addr)
	}
	return routes[0], nil
}
