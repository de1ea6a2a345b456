package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

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
		"nf_conntrack_max); nftproxy flows shows which Service has the connections"
	switch {
	case percent >= fillFail:
		return fail(fill+": new connections are dropped, or will be soon", remedy)
	case percent >= fillWarn:
		return warn(fill+": when it is full, new connections are dropped", remedy)
	}
	return ok(fill)
}

// checkLiberal reports that packets outside of the TCP window are not
// translated.
func checkLiberal(_ context.Context, n *node) Finding {
	value, known := n.number("net/netfilter/nf_conntrack_tcp_be_liberal")
	switch {
	case !known:
		return skipped("connection tracking is not loaded")
	case value != 0:
		return ok("nf_conntrack_tcp_be_liberal is 1")
	}
	return info("nf_conntrack_tcp_be_liberal is 0, the default: packets outside of the TCP window are "+
		"not translated back, and the client resets the connection",
		"if long transfers end with resets, set conntrack.tcpBeLiberal: true in the configuration of the proxy")
}
