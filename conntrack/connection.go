package conntrack

import (
	"context"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// Connection is a tracked connection: a flow of any protocol.
type Connection struct {
	Protocol uint8
	// Client and Frontend are the source and the destination of the first
	// packet. Endpoint is the source of the answers: another one than the
	// frontend if the destination was translated.
	Client, Frontend, Endpoint netip.AddrPort
	// State is the state as the conntrack program writes it: ESTABLISHED,
	// SYN_SENT, and others of TCP and SCTP, or OFFLOAD while a flow table
	// forwards the packets; REPLIED or UNREPLIED for protocols without states.
	State string
	// ID distinguishes connections of the same client. The kernel computes it
	// from the address of the entry in memory and the original addresses, so it
	// is as good as random.
	ID uint32
}

// Select calls each with the selected connections.
//
// The connections are not a snapshot: while the table changes, one can be
// missing or be twice among them.
func (c *Conn) Select(ctx context.Context, s Selection, each func(Connection)) error {
	for flow, err := range c.listFlows(s) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		each(Connection{
			Protocol: flow.protocol, Client: flow.original.src, Frontend: flow.original.dst,
			Endpoint: flow.reply.src, State: flow.stateName(), ID: flow.id,
		})
	}
	return nil
}

// DeleteAttempts deletes the selected attempts to connect by TCP that have no
// answer and of which which returns true, and returns their number. The rules
// must not lead to their endpoints any more.
func (c *Conn) DeleteAttempts(
	ctx context.Context, s Selection, which func(frontend, endpoint netip.AddrPort) bool,
) (deleted int, err error) {
	s.Protocol, s.Answer = unix.IPPROTO_TCP, Unanswered
	var stats Stats
	err = c.cleanSelected(ctx, s, func(flow trackedFlow) bool {
		return flow.attempt() && which(flow.original.dst, flow.reply.src)
	}, &stats)
	return stats.Deleted, err
}

// Bits of the status of a flow (linux/netfilter/nf_conntrack_common.h).
const (
	statusSeenReply  = 1 << 1
	statusTranslated = 1 << 5
	statusOffload    = 1 << 14
)

// Attributes within CTA_PROTOINFO (enum ctattr_protoinfo and others).
const (
	ctaProtoInfoTCP  = 1
	ctaProtoInfoSCTP = 3
	ctaState         = 1
)

// stateName returns the state as in Connection.
func (f trackedFlow) stateName() string {
	var states []string
	switch f.protocol {
	case unix.IPPROTO_TCP:
		states = tcpStates[:]
	case unix.IPPROTO_SCTP:
		states = sctpStates[:]
	default:
		if f.answered() {
			return "REPLIED"
		}
		return "UNREPLIED"
	}
	switch {
	case f.status&statusOffload != 0: // the kernel does not send a state
		return "OFFLOAD"
	case int(f.state) >= len(states):
		return "STATE" + strconv.Itoa(int(f.state))
	}
	return states[f.state]
}

// tcpStates are the names of enum tcp_conntrack
// (linux/netfilter/nf_conntrack_tcp.h).
var tcpStates = [...]string{
	"NONE", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE",
	"SYN_SENT2",
}

// sctpStates are the names of enum sctp_conntrack
// (linux/netfilter/nf_conntrack_sctp.h).
var sctpStates = [...]string{
	"NONE", "CLOSED", "COOKIE_WAIT", "COOKIE_ECHOED", "ESTABLISHED", "SHUTDOWN_SENT", "SHUTDOWN_RECD",
	"SHUTDOWN_ACK_SENT",
	"HEARTBEAT_SENT", "HEARTBEAT_ACKED",
}

// States of connections that have not begun, or have ended.
const (
	tcpSynSent  = 1
	tcpSynRecv  = 2
	tcpFinWait  = 4
	tcpTimeWait = 7
	tcpClose    = 8
	tcpSynSent2 = 9

	sctpClosed          = 1
	sctpCookieWait      = 2
	sctpCookieEchoed    = 3
	sctpShutdownSent    = 5
	sctpShutdownAckSent = 7
)
