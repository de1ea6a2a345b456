package conntrack

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

const (
	messageGetStats       = unix.NFNL_SUBSYS_CTNETLINK<<8 | 5 // IPCTNL_MSG_CT_GET_STATS
	ctaStatsGlobalEntries = 1
)

// Entries returns the number of flows of all protocols in the table
// (net.netfilter.nf_conntrack_count).
func (c *Conn) Entries() (entries int, err error) {
	found := false
	nothing := func(*nfnetlink.Writer) {}
	err = request(c.calls, messageGetStats, unix.NLM_F_ACK, 0, nothing, func(msg nfnetlink.Message) error {
		n := nfnetlink.Attr(msg.Attributes(), ctaStatsGlobalEntries)
		entries, found = int(nfnetlink.Uint32(n)), n != nil
		return nil
	})
	if err == nil && !found {
		err = nfnetlink.ErrIncomplete
	}
	if err != nil {
		return 0, fmt.Errorf("count flows: %w", err)
	}
	return entries, nil
}
