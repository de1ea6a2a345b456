package operator

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// kernelTable is a table of a proxy in the kernel.
type kernelTable struct {
	Name string `json:"name"` // ip kube-proxy
	// State is whose table it is, and whether packets use it.
	State string `json:"state"`
	// Rows is the number of rows by set, for sets that have any. It is empty if
	// the kernel does not report it (before Linux 6.15).
	Rows map[string]int `json:"rows,omitempty"`
}

// States of a table.
const (
	tableMissing = "does not exist"
	tableOurs    = "written by nftproxy, and in use"
	tableForeign = "not written by nftproxy; kube-proxy's table has the same name"
	tableDormant = "dormant: packets do not use it"
)

// readTables reads the tables of all families.
func readTables() ([]kernelTable, error) {
	conn, err := nft.Open()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var tables []kernelTable
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		t, err := readTable(conn, &nft.Table{Family: f, Name: ruleset.TableName})
		if errors.Is(err, unix.EPERM) {
			return nil, explain.ErrPermission
		}
		if err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	return tables, nil
}

func readTable(conn *nft.Conn, table *nft.Table) (t kernelTable, err error) {
	t = kernelTable{Name: table.Family.String() + " " + table.Name, State: tableForeign, Rows: make(map[string]int)}
	found, ok, err := conn.FindTable(table)
	if err != nil {
		return t, err
	}
	sets, err := conn.Sets(table)
	if err != nil {
		return t, err
	}
	for _, s := range sets {
		if s.Name == ruleset.OwnSet {
			t.State = tableOurs
		}
		if s.Count > 0 {
			t.Rows[s.Name] = s.Count
		}
	}
	switch {
	case !ok:
		t.State = tableMissing
	case found.Flags&unix.NFT_TABLE_F_DORMANT != 0:
		t.State = tableDormant
	}
	return t, nil
}
