package nft

import (
	"golang.org/x/sys/unix"
)

// Table describes a table and its program: counters, sets, chains and
// rules. The rows of its sets are not part of it.
type Table struct {
	Family   Family
	Name     string
	Comment  string
	Counters []*Counter
	Sets     []*Set
	Chains   []*Chain
	// Owned makes the table belong to the Conn that adds it (Linux 5.12). The
	// kernel deletes the table when the Conn is closed, also if the process is
	// killed. Other programs cannot change the table.
	Owned bool
}

// nftTableOwner is NFT_TABLE_F_OWNER of linux/netfilter/nf_tables.h.
const nftTableOwner = 2

// String returns the table as nft writes it, such as `table ip kube-proxy`.
func (t *Table) String() string { return "table " + t.Family.String() + " " + t.Name }

// AddTable adds the table with a comment, without its contents. If the table
// exists, nothing changes.
func (b *Batch) AddTable(comment string) {
	b.add(kindTable, sentMessage{}, func(w *messageWriter) {
		var flags uint32
		if b.table.Owned {
			flags = nftTableOwner
		}
		w.Uint32(unix.NFTA_TABLE_FLAGS, flags)
		w.comment(nftaTableUserdata, comment)
	})
}

// DeleteTable deletes the table with all its contents. The commit fails if
// the table does not exist.
func (b *Batch) DeleteTable() { b.delete("delete table", kindTable, "") }

// FoundTable is a table in the kernel.
type FoundTable struct {
	// Handle is the number of the table. A table that is deleted and added
	// again has another handle.
	Handle uint64
	// Flags are the flags of the table (NFT_TABLE_F_*).
	Flags uint32
}

// FindTable reads the table with the family and name of t. It returns ok as
// false if the table does not exist.
func (c *Conn) FindTable(t *Table) (found FoundTable, ok bool, err error) {
	return find(c, kindTable, t, "", parseTable)
}

func parseTable(msg []byte) FoundTable {
	return FoundTable{Handle: be64(attr(msg, nftaTableHandle)), Flags: be32(attr(msg, unix.NFTA_TABLE_FLAGS))}
}
