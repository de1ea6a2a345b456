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
func (c *Conn) Entries() (int, error) {
	entries, err := c.entries()
	if err != nil {
		return 0, fmt.Errorf("count flows: %w", err)
	}
	return entries, nil
}

func (c *Conn) entries() (int, error) {
	seq := c.calls.nextSeq()
	b := appendMessage(nil, header{Type: messageGetStats, Flags: unix.NLM_F_REQUEST, Seq: seq}, 0)
	if err := c.calls.send(endMessage(b, 0)); err != nil {
		return 0, err
	}
	for {
		b, err := c.calls.receive()
		if err != nil {
			return 0, err
		}
		h, payload, _, err := nextMessage(b)
		switch {
		case err != nil:
			return 0, err
		case h.Seq != seq:
			continue // an answer to an earlier request that was abandoned
		case h.Type == unix.NLMSG_ERROR:
			return 0, messageError(payload)
		case h.Type == messageGetStats && len(payload) >= genHeaderLen:
			return decodeEntries(payload[genHeaderLen:])
		}
	}
}

func decodeEntries(b []byte) (int, error) {
	n, err := uint32Attr(nfnetlink.Attr(b, ctaStatsGlobalEntries))
	return int(n), err
}
