package explain

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Kernel is the table of a family in the kernel, and the routes of the network
// namespace in which it was opened. It implements Table and Routes.
type Kernel struct {
	*NodeRoutes
	conn  *nft.Conn
	table *nft.Table
}

// ErrNoTable is returned if the node has no table of a proxy.
var ErrNoTable = errors.New("does not exist: no proxy has run on this node, or not for this family")

// ErrPermission is returned if this process cannot read rules.
var ErrPermission = errors.New("no permission to read the rules of the kernel: CAP_NET_ADMIN is required")

// OpenKernel opens the table of a family. The error is for people if there is
// no table, or that of another program, or if it is ErrPermission.
func OpenKernel(f nft.Family) (*Kernel, error) {
	conn, err := nft.Open()
	if err != nil {
		return nil, err
	}
	routes, err := OpenRoutes()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	k := &Kernel{NodeRoutes: routes, conn: conn, table: &nft.Table{Family: f, Name: ruleset.TableName}}
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
		return ErrPermission
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
	k.NodeRoutes.Close()
	return k.conn.Close()
}

// Explain walks a hypothetical packet through the table. All rules and rows
// that it reads belong to one generation.
func (k *Kernel) Explain(q Query) (r *Result, err error) {
	_, err = k.conn.Snapshot(func() error {
		r, err = Explain(k, k, q)
		return err
	})
	return r, err
}

// BaseChain implements Table.
func (k *Kernel) BaseChain(point nft.HookPoint) (string, error) {
	name := ruleset.BaseChainName(point)
	found, ok, err := k.conn.FindChain(k.table, name)
	if err == nil && (!ok || found.Hook == nil || found.Hook.Point != point) {
		err = fmt.Errorf("%s has no chain %s at hook %s: another program changed it", k.table, name, point)
	}
	return name, err
}

// Rules implements Table.
func (k *Kernel) Rules(chain string) ([]nft.Rule, error) {
	return k.conn.Rules(k.table, chain)
}

// Set implements Table.
func (k *Kernel) Set(name string) (*nft.Set, error) {
	set, err := k.conn.FindSet(k.table, name)
	if err == nil && set == nil {
		err = fmt.Errorf("%s has no set %s", k.table, name)
	}
	return set, err
}

// Row implements Table.
func (k *Kernel) Row(set *nft.Set, key nft.Tuple) (nft.Row, error) {
	found, err := k.conn.FindRows(k.table, []nft.Row{{Set: set, Key: key}})
	if err != nil {
		return nft.Row{}, err
	}
	return found[0], nil
}
