package answer

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/nft"
)

// refusals counts the TCP connections that endpoints refuse. The kernel keeps
// no entry of a refused connection, so rules count the answers. They have a
// table of their own in each family, which exists while the meter counts, and
// which the kernel deletes if the process ends.
type refusals struct {
	owner  *nft.Conn
	tables []*nft.Table // that exist
	last   map[conntrack.Pair]uint64
	// err is the first reason why refusals are not known.
	err error
}

// Limits of the counters. One that counts nothing for a time is deleted.
const (
	maxRefused  = 4096
	refusedTime = time.Minute
)

func openRefusals() (*refusals, error) {
	owner, err := nft.Open()
	return &refusals{owner: owner}, err
}

// close ends the count. The kernel deletes the tables of a connection.
func (r *refusals) close() error { return r.owner.Close() }

// begin adds the tables.
func (r *refusals) begin() {
	r.end()
	port, err := r.owner.Port()
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		table := refusalTable(f, fmt.Sprintf("nftproxy-top-%d", port))
		b := nft.NewBatch(table)
		b.AddProgram()
		if err == nil {
			err = r.owner.Commit(b)
		}
		if err == nil {
			r.tables = append(r.tables, table)
		}
	}
	if r.err = err; nft.LacksOwners(err) {
		r.err = errors.New("counting them requires Linux 5.12 or later, for tables that end with their process")
	}
	r.last = make(map[conntrack.Pair]uint64)
}

// end deletes the tables.
func (r *refusals) end() {
	for _, table := range r.tables {
		b := nft.NewBatch(table)
		b.DeleteTable()
		_ = r.owner.Commit(b) // another program may have deleted it
	}
	r.tables, r.last, r.err = nil, nil, nil
}

// count returns the refusals since the last count.
func (r *refusals) count() map[conntrack.Pair]int {
	since, next := make(map[conntrack.Pair]int), make(map[conntrack.Pair]uint64)
	for _, table := range r.tables {
		rows, err := r.owner.Rows(table, table.Sets[0])
		if err != nil {
			r.err = cmp.Or(r.err, err)
			return nil
		}
		for _, row := range rows {
			pair := refusedPair(table.Family, row.Key.Bytes())
			if next[pair] = row.Packets; row.Packets > r.last[pair] { // a counter can be a new one
				since[pair] = int(row.Packets - r.last[pair])
			}
		}
	}
	r.last = next
	return since
}

// refusalTable returns the table of a family. The chains see the answers of
// endpoints before they are translated back:
//
//	ct direction reply ct status dnat tcp flags rst,ack / rst,ack tcp sequence 0
//	  update @refused { ip saddr . tcp sport . ct original ip daddr . ct original proto-dst timeout 1m }
func refusalTable(f nft.Family, name string) *nft.Table {
	set := &nft.Set{
		Name: "refused", Dynamic: true, Counts: true, Size: maxRefused,
		Key: nft.Types(nft.TypeAddr(f), nft.TypeInetService, nft.TypeAddr(f), nft.TypeInetService),
	}
	chain := func(name string, point nft.HookPoint, match ...nft.Statement) *nft.Chain {
		const afterTracking = -199
		match = append(match, nft.CtDirectionReply(), nft.CtStatusDNAT(), nft.TCPRefuses(),
			nft.Update(set, refusedTime, nft.Saddr(f), nft.ThSport(), nft.OriginalDaddr(f), nft.OriginalDport()))
		return &nft.Chain{
			Name: name, Hook: &nft.Hook{Type: nft.ChainTypeFilter, Point: point, Priority: afterTracking},
			Rules: []nft.Rule{nft.NewRule(match...)},
		}
	}
	return &nft.Table{Family: f, Name: name, Owned: true, Sets: []*nft.Set{set}, Chains: []*nft.Chain{
		chain("prerouting", nft.Prerouting, nft.NotInInterface("lo")), // answers of this node were in output
		chain("output", nft.Output),
	}}
}

// refusedPair returns the pair of a row's key.
func refusedPair(f nft.Family, key []byte) conntrack.Pair {
	next := func(t nft.Type) []byte {
		field := key[:t.Size()]
		key = key[t.Padded():]
		return field
	}
	at := func() netip.AddrPort {
		addr, _ := netip.AddrFromSlice(next(nft.TypeAddr(f)))
		return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(next(nft.TypeInetService)))
	}
	endpoint := at()
	return conntrack.Pair{Protocol: unix.IPPROTO_TCP, Endpoint: endpoint, Frontend: at()}
}
