package flows

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// frontend identifies a frontend.
type frontend struct {
	address  netip.AddrPort
	protocol cluster.Protocol
}

// Top counts the connections to all frontends of Services, and returns the n
// frontends with most connections. It counts no endpoints.
func (r *Reader) Top(ctx context.Context, n int) (*Report, error) {
	report, err := r.newReport()
	if err != nil {
		return nil, err
	}
	counts := make(map[frontend]*Counts) // one for each frontend: memory does not depend on the connections
	for _, family := range []nft.Family{nft.IPv4, nft.IPv6} {
		read, err := r.conn.Select(ctx, conntrack.Selection{Family: family, Translated: true},
			func(c conntrack.Connection) {
				countsOf(counts, frontend{c.Frontend, cluster.Protocol(c.Protocol)}).add(c.State)
				report.Total++
			})
		report.Read += read
		if err != nil {
			return nil, err
		}
	}
	if err := r.addTop(ctx, report, counts, n); err != nil {
		return nil, err
	}
	r.addNotes(report, report.Total)
	return report, nil
}

// addTop adds the n frontends of Services with most connections. Other programs
// translate destinations, too. Without a table, their frontends cannot be
// distinguished.
func (r *Reader) addTop(ctx context.Context, report *Report, counts map[frontend]*Counts, n int) error {
	for _, key := range slices.SortedFunc(maps.Keys(counts), func(a, b frontend) int {
		return cmp.Or(cmp.Compare(counts[b].Connections, counts[a].Connections), a.address.Compare(b.address),
			cmp.Compare(a.protocol, b.protocol))
	}) {
		if len(report.Groups) == n {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		name, endpoints := r.explain(key.address, key.protocol)
		if name == "" && endpoints != nil {
			continue
		}
		report.Groups = append(report.Groups, &Group{
			ServicePort: name, Protocol: key.protocol.String(), Counts: *counts[key],
			Frontends: []Frontend{{key.address, counts[key].Connections}},
		})
	}
	return nil
}
