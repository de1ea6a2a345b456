package nft

import (
	"encoding/binary"

	"github.com/google/nftables/expr"
)

// Queues are the queues to which a rule sends packets, for a program that
// decides about them (nfnetlink_queue).
type Queues struct {
	// First is the number of the first queue, Total how many there are.
	First, Total uint16
	// Bypass reports whether the packet passes if no program listens to its
	// queue. Otherwise the kernel drops it.
	Bypass bool
}

// Queues returns the queues to which the rule sends packets. ok is false if
// there are none, or if their numbers are not known.
func (r Rule) Queues() (q Queues, ok bool) {
	for _, e := range r.Expressions {
		switch e := e.(type) {
		case *expr.Queue:
			q = Queues{e.Num, e.Total, e.Flag&expr.QueueFlagBypass != 0}
		case *Extension:
			q = e.queues()
		}
	}
	return q, q.Total > 0
}

// queues returns the queues of a target NFQUEUE. Its data is a struct
// xt_NFQ_info_v3; that of earlier revisions is shorter.
func (e *Extension) queues() (q Queues) {
	const bypass = 1
	if !e.Target || e.Name != "NFQUEUE" || len(e.Data) < 2 {
		return Queues{}
	}
	fields := binary.NativeEndian
	q = Queues{First: fields.Uint16(e.Data), Total: 1}
	if e.Revision >= 1 && len(e.Data) >= 4 {
		q.Total = fields.Uint16(e.Data[2:])
	}
	q.Bypass = e.Revision >= 2 && len(e.Data) >= 6 && fields.Uint16(e.Data[4:])&bypass != 0
	return q
}
