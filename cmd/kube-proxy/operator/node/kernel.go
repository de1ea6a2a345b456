package node

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/route"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Kernel is the table of a family in the kernel, and the routes of the network
// namespace in which it was opened. It implements explain.Table and walk.Host.
type Kernel struct {
	*route.Routes
	walk.Kernel
}

// ErrNoTable is returned if the node has no table of a proxy.
var ErrNoTable = errors.New("does not exist: no proxy has run on this node, or not for this family")

// ErrPermission is returned if this process cannot read rules.
var ErrPermission = errors.New("no permission to read the rules of the kernel: CAP_NET_ADMIN is required")

// OpenKernel opens the table of a family. The error is for people if there is
// no table, or a table of another program, or if it is ErrPermission.
func OpenKernel(f nft.Family) (*Kernel, error) {
	conn, err := nft.Open()
	if err != nil {
		return nil, err
	}
	routes, err := route.Open()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	table := &nft.Table{Family: f, Name: ruleset.TableName}
	k := &Kernel{Routes: routes, Kernel: walk.Kernel{Conn: conn, Table: table}}
	if err := k.check(); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// check returns an error if the table does not belong to nftproxy, or is not in
// use.
func (k *Kernel) check() error {
	found, ok, err := k.Conn.FindTable(k.Table)
	switch {
	case errors.Is(err, unix.EPERM):
		return ErrPermission
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("%s %w", k.Table, ErrNoTable)
	case found.Flags&unix.NFT_TABLE_F_DORMANT != 0:
		return fmt.Errorf("%s is dormant: packets do not pass it", k.Table)
	}
	set, err := k.Conn.FindSet(k.Table, ruleset.OwnSet)
	if err == nil && set == nil {
		return fmt.Errorf("%s belongs to kube-proxy or another program: it has no set %s", k.Table, ruleset.OwnSet)
	}
	return err
}

// InTables calls use with the table of each family that has one. It returns
// ErrNoTable if none has.
func InTables(use func(*Kernel) error) (missing error) {
	found := false
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		k, err := OpenKernel(f)
		if errors.Is(err, ErrNoTable) {
			missing = cmp.Or(missing, err)
			continue
		}
		if err == nil {
			err = errors.Join(use(k), k.Close())
		}
		if err != nil {
			return err
		}
		found = true
	}
	if found {
		return nil
	}
	return missing
}

// Close closes the connections to the kernel.
func (k *Kernel) Close() error {
	k.Routes.Close()
	return k.Conn.Close()
}

// IsLocal reports whether an address is one of this node.
func (k *Kernel) IsLocal(addr netip.Addr) bool {
	typ, err := k.RouteType(addr)
	return typ == unix.RTN_LOCAL && err == nil
}

// BaseChain implements explain.Table.
func (k *Kernel) BaseChain(point nft.HookPoint) (string, error) {
	name := ruleset.BaseChainName(point)
	found, ok, err := k.Conn.FindChain(k.Table, name)
	switch {
	case err != nil:
	case !ok || found.Hook == nil || found.Hook.Point != point:
		err = fmt.Errorf("%s has no chain %s at hook %s: another program changed it", k.Table, name, point)
	case found.Hook.Drop:
		err = fmt.Errorf("chain %s of %s has another policy than accept: another program changed it", name, k.Table)
	}
	return name, err
}
