package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/nft/notify"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Reply is what came back for the first packets of a TCP connection.
type Reply struct {
	Kind ReplyKind `json:"kind"`
	// Seconds is the time from the first packet to the reply, or to the end of
	// the wait for it.
	Seconds float64 `json:"seconds"`
	// Packets is the number of packets that the client sent: the SYN, and
	// repetitions of it. Tried are the endpoints that got them.
	Packets int              `json:"packets"`
	Tried   []netip.AddrPort `json:"tried"`
	// From is the source of an ICMP error.
	From netip.Addr `json:"from,omitzero"`
	// Reason has the code Unanswered if nothing came back.
	Reason ruleset.Reason `json:"reason,omitzero"`
}

// ReplyKind is the kind of a Reply.
type ReplyKind string

// Kinds of replies.
const (
	Accepted  ReplyKind = "SYN-ACK"
	Refused   ReplyKind = "RST"
	ICMPError ReplyKind = "ICMP error"
	Nothing   ReplyKind = "nothing"
)

// replyKinds are the kinds that chains of the own table report.
var replyKinds = map[string]ReplyKind{chainAccepted: Accepted, chainRefused: Refused, chainError: ICMPError}

// replyTime is the time without a reply after which a flow is unanswered. In
// it, Linux repeats a SYN twice at least.
const replyTime = 3500 * time.Millisecond

// flowKey identifies a flow by the addresses that the client uses.
type flowKey struct{ client, service netip.AddrPort }

// flow is a TCP connection whose first packet was sent to an endpoint.
type flow struct {
	packet *Packet // the first one, nil once it was returned
	began  time.Time
	sent   int
	tried  []netip.AddrPort
}

// flows are the flows of the last clientTime.
type flows map[flowKey]*flow

// take adds a packet that was sent to an endpoint, and reports whether it
// belongs to a flow. Then replied or expire returns the packet.
func (s flows) take(k *Packet, now time.Time) bool {
	if k.protocol != unix.IPPROTO_TCP || k.Action != explain.ToEndpoint || k.Final == nil {
		return false
	}
	key := flowKey{k.Source, k.Destination}
	f := s[key]
	if f == nil {
		f = &flow{packet: k, began: now}
		s[key] = f
	}
	f.sent++
	if !slices.Contains(f.tried, k.Endpoint) {
		f.tried = append(f.tried, k.Endpoint)
	}
	return true
}

// replied returns the packet that began the flow of a reply, nil if no flow
// waits for the reply. An ICMP error has no ports: it belongs to the oldest
// flow of the client.
func (s flows) replied(kind ReplyKind, reply *notify.TracedPacket, now time.Time) *Packet {
	f := s[flowKey{reply.Destination, reply.Source}]
	if kind == ICMPError {
		f = nil
		for key, other := range s {
			waits := other.packet != nil && key.client.Addr() == reply.Destination.Addr()
			if waits && (f == nil || other.began.Before(f.began)) {
				f = other
			}
		}
	}
	if f == nil || f.packet == nil {
		return nil
	}
	k := f.end(kind, now)
	if kind == ICMPError {
		k.Reply.From = reply.Source.Addr()
	}
	return k
}

// expire returns the packets of the flows that got no reply for a time, the
// oldest first, and forgets old flows.
func (s flows) expire(now time.Time, wait time.Duration) (ended []*Packet) {
	for key, f := range s {
		switch age := now.Sub(f.began); {
		case f.packet != nil && age >= wait:
			ended = append(ended, f.end(Nothing, now))
		case f.packet == nil && age >= clientTime:
			delete(s, key)
		}
	}
	slices.SortFunc(ended, func(a, b *Packet) int { return a.Time.Compare(b.Time) })
	return ended
}

// end returns the packet with the reply.
func (f *flow) end(kind ReplyKind, now time.Time) *Packet {
	k := f.packet
	f.packet = nil
	k.Reply = &Reply{Kind: kind, Seconds: now.Sub(f.began).Seconds(), Packets: f.sent, Tried: f.tried}
	if kind == Nothing {
		k.Reply.Reason = ruleset.Unanswered.Reason(ruleset.Facts{})
	}
	return k
}

// String returns the reply, and what it means.
func (r *Reply) String() string {
	tried := make([]string, len(r.Tried))
	for i, e := range r.Tried {
		tried[i] = e.String()
	}
	to := strings.Join(tried, ", ")
	switch r.Kind {
	case Accepted:
		return "SYN-ACK: " + to + " accepts the connection"
	case Refused:
		return "RST: " + to + " refuses the connection: no process listens on the port (compare targetPort), or a " +
			"NetworkPolicy rejects it"
	case ICMPError:
		return fmt.Sprintf("ICMP error from %s: it, or a firewall there, does not deliver packets to %s", r.From, to)
	}
	return fmt.Sprintf("nothing in %.1f s: %d packets to %s: the pod is gone, or a NetworkPolicy or firewall drops "+
		"packets on its node or the replies%s", r.Seconds, r.Packets, to, r.Reason.CodeText())
}
