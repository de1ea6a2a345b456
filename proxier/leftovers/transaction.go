package leftovers

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// transaction is a list of deletions from one table of nf_tables that are carried out together or not at all.
type transaction struct {
	table    *nft.Table
	requests []*nl.NetlinkRequest
	about    []deletion // what each request is about
}

// deletion is one part of a transaction.
type deletion struct {
	typ   int // NFT_MSG_DELRULE or NFT_MSG_DELCHAIN
	chain string
	errno unix.Errno // with which the kernel refused it
}

// String names the deletion and the error: "delete chain KUBE-SERVICES: device or resource busy".
func (d deletion) String() string {
	what := "delete rules of chain "
	if d.typ == unix.NFT_MSG_DELCHAIN {
		what = "delete chain "
	}
	return what + d.chain + ": " + d.errno.Error()
}

// refusedError says that the kernel refused a transaction, and why: at least one part. Nothing of it was carried out.
type refusedError struct{ parts []deletion }

func (e *refusedError) Error() string {
	s := e.parts[0].String()
	if n := len(e.parts) - 1; n > 0 {
		s += fmt.Sprintf(" (and %d more)", n)
	}
	return s
}

// Unwrap returns the error numbers of all parts.
func (e *refusedError) Unwrap() []error {
	errs := make([]error, len(e.parts))
	for i, d := range e.parts {
		errs[i] = d.errno
	}
	return errs
}

func newTransaction(table *nft.Table) *transaction { return &transaction{table: table} }

func (t *transaction) deleteRule(chain string, handle uint64) {
	t.add(unix.NFT_MSG_DELRULE, chain, stringAttr(unix.NFTA_RULE_CHAIN, chain),
		nl.NewRtAttr(unix.NFTA_RULE_HANDLE, binary.BigEndian.AppendUint64(nil, handle)))
}

func (t *transaction) flushChain(chain string) {
	t.add(unix.NFT_MSG_DELRULE, chain, stringAttr(unix.NFTA_RULE_CHAIN, chain))
}

func (t *transaction) deleteChain(chain string) {
	t.add(unix.NFT_MSG_DELCHAIN, chain, stringAttr(unix.NFTA_CHAIN_NAME, chain))
}

func (t *transaction) add(typ int, chain string, attrs ...*nl.RtAttr) {
	req := newRequest(typ, 0, t.table, attrs...)
	t.requests = append(t.requests, req)
	t.about = append(t.about, deletion{typ: typ, chain: chain})
}

// encode returns the transaction as the kernel takes it. Request i has the sequence number i+1. Only the last is acknowledged: errors
// are reported in any case, and an acknowledgement each would overflow the receive buffer.
func (t *transaction) encode() []byte {
	t.requests[len(t.requests)-1].Flags |= unix.NLM_F_ACK
	data := batchLimit(unix.NFNL_MSG_BATCH_BEGIN).Serialize()
	for i, req := range t.requests {
		req.Seq = uint32(i + 1)
		data = append(data, req.Serialize()...)
	}
	return append(data, batchLimit(unix.NFNL_MSG_BATCH_END).Serialize()...)
}

// batchLimit returns the message that opens or ends a transaction.
func batchLimit(typ int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(typ, 0)
	req.Seq = 0
	req.AddData(&nl.Nfgenmsg{Version: nl.NFNETLINK_V0, ResId: nl.Swap16(unix.NFNL_SUBSYS_NFTABLES)})
	return req
}

// newRequest returns a request to nf_tables about a table. In all of them attribute 1 is the table's name.
func newRequest(typ, flags int, table *nft.Table, attrs ...*nl.RtAttr) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|typ, flags)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(table.Family), Version: nl.NFNETLINK_V0})
	req.AddData(stringAttr(unix.NFTA_RULE_TABLE, table.Name))
	for _, a := range attrs {
		req.AddData(a)
	}
	return req
}

func stringAttr(typ int, value string) *nl.RtAttr { return nl.NewRtAttr(typ, nl.ZeroTerminated(value)) }

// commit carries out a transaction. The error is a *refusedError if the kernel refused it, nft.ErrUnknownOutcome if its answer was lost.
func (s *socket) commit(t *transaction) error {
	data := t.encode()
	if err := s.send(data); err != nil {
		return fmt.Errorf("send transaction of %d bytes: %w", len(data), err)
	}
	acknowledged := false
	var refused []deletion
	for seq, errno := range s.answers() {
		i := int(seq) - 1
		switch {
		case i < 0 && errno != 0: // of the transaction as a whole
			return errno
		case i < 0 || i >= len(t.about):
		case errno != 0:
			d := t.about[i]
			d.errno = errno
			refused = append(refused, d)
		case i == len(t.about)-1:
			acknowledged = true
		}
	}
	switch {
	case len(refused) > 0:
		return &refusedError{refused}
	case !acknowledged:
		return nft.ErrUnknownOutcome
	}
	return nil
}
