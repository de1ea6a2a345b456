package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	hooks "github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/conntrack"
)

// Thresholds of the fill of connection tracking in percent. A full table drops
// new connections.
const (
	fillWarn = 80
	fillFail = 95
)

// checkConntrack checks how full connection tracking is.
func checkConntrack(_ context.Context, n *node) Finding {
	usage, err := conntrack.ReadUsage(n.Root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return skipped("connection tracking is not loaded")
	case err != nil:
		return unknown(err)
	case usage.Max == 0:
		return ok("connection tracking has no limit")
	}
	percent := int(usage.Full() * 100)
	fill := fmt.Sprintf("connection tracking has %d of %d entries (%d %%)", usage.Entries, usage.Max, percent)
	const remedy = "raise conntrack.maxPerCore or conntrack.min in the configuration of the proxy (net.netfilter." +
		"nf_conntrack_max); nftproxy top shows which Service has the connections"
	switch {
	case percent >= fillFail:
		return fail(fill+": new connections are dropped, or will be soon", remedy)
	case percent >= fillWarn:
		return warn(fill+": when it is full, new connections are dropped", remedy)
	}
	return ok(fill)
}

// checkLiberal reports whether packets outside of the TCP window are
// translated.
func checkLiberal(_ context.Context, n *node) Finding {
	value, known := n.number("net/netfilter/nf_conntrack_tcp_be_liberal")
	switch {
	case !known:
		return skipped("connection tracking is not loaded")
	case value != 0:
		return ok("nf_conntrack_tcp_be_liberal is 1")
	}
	return ok("nf_conntrack_tcp_be_liberal is 0, the default: packets outside of the TCP window are not translated")
}

// checkStaleConnections checks whether the reset of connections to endpoints
// that are gone works: the kernel must take the next packet of a client as the
// first one of a connection, and rules of other programs must not drop it.
func checkStaleConnections(ctx context.Context, n *node) Finding {
	switch {
	case n.Proxy == nil:
		return n.withoutProxy()
	case !n.Proxy.ResetStaleConnections:
		return skipped("the proxy runs without --reset-stale-connections")
	}
	if loose, known := n.number("net/netfilter/nf_conntrack_tcp_loose"); known && loose == 0 {
		return warn("nf_conntrack_tcp_loose is 0: connections to endpoints that are gone are not reset",
			"sysctl -w net.netfilter.nf_conntrack_tcp_loose=1, or run the proxy without --reset-stale-connections")
	}
	blocks, err := findMidstreamBlocks(ctx)
	switch {
	case err != nil:
		return unknown(err)
	case len(blocks) == 0:
		return ok("connections to endpoints that are gone are reset")
	}
	finding := info("rules of other programs may drop packets without SYN, so that connections to endpoints that "+
		"are gone are not reset", "accept these packets before the rules (nft: ct state new tcp flags ack accept)")
	for _, b := range blocks {
		finding.Details = append(finding.Details, b.String())
	}
	return finding
}

// findMidstreamBlocks returns the rules of other programs that drop or reject a
// packet of a client whose connection was deleted, and not its first packet.
func findMidstreamBlocks(ctx context.Context) ([]hooks.Effect, error) {
	regular, err := followSamples(ctx, samplesOf, (*hooks.Tables).Journeys)
	if err != nil {
		return nil, err
	}
	midstream, err := followSamples(ctx, samplesOf, (*hooks.Tables).Midstream)
	return slices.DeleteFunc(midstream.effects, func(e hooks.Effect) bool {
		return !e.Blocks() || slices.ContainsFunc(regular.effects, e.SameRule)
	}), err
}
