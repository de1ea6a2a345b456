package notation

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// action returns the text of an expression that neither loads nor compares a
// value.
func (w *ruleWriter) action(e expr.Any) string {
	switch e := e.(type) {
	case *expr.Verdict:
		return Verdict(int32(e.Kind), e.Chain)
	case *expr.NAT:
		return w.nat(e)
	case *expr.Masq:
		return "masquerade" + natFlags(e.Random, e.FullyRandom, e.Persistent)
	case *expr.Reject:
		return w.reject(e)
	case *expr.Counter:
		return "counter"
	case *expr.Objref:
		return NameOf(uint32(e.Type), "", "counter name", "quota name", "ct helper set", "limit name", "", "",
			"ct timeout set", "secmark set", "ct expectation set", "synproxy name") + " " + Quote(e.Name)
	case *expr.Limit:
		return limitText(e)
	case *expr.Queue:
		return queueText(e)
	case fmt.Stringer:
		return e.String()
	}
	return unknownPart
}

// nat returns the translation of an address, a port, or both.
func (w *ruleWriter) nat(e *expr.NAT) string {
	text := NameOf(uint32(e.Type), "snat", "dnat")
	var to string
	if e.RegAddrMin != 0 {
		addr := w.at(e.RegAddrMin)
		if w.family == nfnetlink.Inet || addr.value == nil {
			text += " " + nfnetlink.Family(e.Family).String()
		}
		if to = addr.text; addr.value != nil {
			to = w.addrRange(addr, e)
		}
	}
	if port := w.at(e.RegProtoMin); e.RegProtoMin != 0 && len(port.value) == 2 {
		to += ":" + portText(port.value)
		if last := w.at(e.RegProtoMax); e.RegProtoMax != e.RegProtoMin && len(last.value) == 2 {
			to += "-" + portText(last.value)
		}
	}
	if to != "" {
		text += " to " + to
	}
	return text + natFlags(e.Random, e.FullyRandom, e.Persistent)
}

// addrRange returns the addresses to which a rule translates.
func (w *ruleWriter) addrRange(first operand, e *expr.NAT) string {
	text := addrText(first.value)
	if e.RegAddrMax != 0 && e.RegAddrMax != e.RegAddrMin {
		return text + "-" + addrText(w.at(e.RegAddrMax).value)
	}
	if e.RegProtoMin != 0 && e.Family == unix.NFPROTO_IPV6 {
		return "[" + text + "]"
	}
	return text
}

func natFlags(random, fullyRandom, persistent bool) string {
	flags := textIf(random, ",random") + textIf(fullyRandom, ",fully-random") + textIf(persistent, ",persistent")
	return strings.Replace(flags, ",", " ", 1)
}

// Codes of ICMP and ICMPv6 errors (linux/icmp.h, linux/icmpv6.h).
const (
	ICMPPortUnreachable   = 3
	ICMPv6PortUnreachable = 4
)

// reject returns the answer to a packet. nft omits the usual one.
func (w *ruleWriter) reject(e *expr.Reject) string {
	code, f := uint32(e.Code), w.networkFamily()
	if w.family != nfnetlink.Inet && e.Type == unix.NFT_REJECT_TCP_RST {
		w.omit(&w.transport)
	}
	if e.Type == unix.NFT_REJECT_ICMP_UNREACH {
		w.omit(&w.network)
	}
	switch {
	case e.Type == unix.NFT_REJECT_TCP_RST:
		return "reject with tcp reset"
	case e.Type == unix.NFT_REJECT_ICMPX_UNREACH && code != unix.NFT_REJECT_ICMPX_PORT_UNREACH:
		return "reject with icmpx " + NameOf(code, "no-route", "", "host-unreachable", "admin-prohibited")
	case e.Type != unix.NFT_REJECT_ICMP_UNREACH:
		return "reject"
	case f == nfnetlink.IPv4 && (code != ICMPPortUnreachable || w.family == nfnetlink.Inet):
		return "reject with icmp " + NameOf(code, "net-unreachable", "host-unreachable", "prot-unreachable",
			"port-unreachable", "", "", "", "", "", "net-prohibited", "host-prohibited", "", "", "admin-prohibited")
	case f == nfnetlink.IPv6 && (code != ICMPv6PortUnreachable || w.family == nfnetlink.Inet):
		return "reject with icmpv6 " + NameOf(code, "no-route", "admin-prohibited", "", "addr-unreachable",
			"port-unreachable", "policy-fail", "reject-route")
	}
	return "reject"
}

// limitText returns `limit rate over 10/second burst 20 packets`.
func limitText(e *expr.Limit) string {
	const defaultBurst = 5 // which nft omits
	unit := map[expr.LimitTime]string{
		expr.LimitTimeSecond: "second", expr.LimitTimeMinute: "minute", expr.LimitTimeHour: "hour",
		expr.LimitTimeDay: "day", expr.LimitTimeWeek: "week",
	}[e.Unit]
	if unit == "" || e.Type != expr.LimitTypePkts {
		return "limit " + unknownPart
	}
	text := fmt.Sprintf("limit rate %s%d/%s", textIf(e.Over, "over "), e.Rate, unit)
	if e.Burst != defaultBurst {
		text += fmt.Sprintf(" burst %d packets", e.Burst)
	}
	return text
}

// queueText returns `queue flags bypass to 100-103`.
func queueText(e *expr.Queue) string {
	if e.Total == 0 { // a register has the number
		return "queue " + unknownPart
	}
	text := "queue "
	if e.Flag != 0 {
		text += "flags " + NameOf(uint32(e.Flag), "", "bypass", "fanout", "bypass,fanout") + " "
	}
	text += fmt.Sprintf("to %d", e.Num)
	if e.Total > 1 {
		text += fmt.Sprintf("-%d", uint32(e.Num)+uint32(e.Total)-1)
	}
	return text
}

// durationText returns a duration as nft writes it, such as 1d2h3m4s5ms.
func durationText(d time.Duration) string {
	var b strings.Builder
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if n := d / u.unit; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d -= n * u.unit
		}
	}
	if b.Len() == 0 {
		return "0s"
	}
	return b.String()
}

// VerdictCode returns the code of a verdict without the number of a queue or an
// error, which the kernel stores in the upper bits (NF_VERDICT_MASK).
func VerdictCode(code int32) int32 {
	if code >= 0 {
		code &= 0xff
	}
	return code
}

// Verdict returns a verdict in nft syntax.
func Verdict(code int32, chain string) string {
	name, known := verdictNames[VerdictCode(code)]
	switch {
	case !known:
		return "verdict " + strconv.Itoa(int(VerdictCode(code)))
	case chain != "":
		return name + " " + chain
	}
	return name
}

// verdictNames are the names of verdicts. The first four are NF_DROP and so on
// of linux/netfilter.h.
var verdictNames = map[int32]string{
	0: "drop", 1: "accept", 2: "stolen", 3: "queue",
	unix.NFT_CONTINUE: "continue", unix.NFT_RETURN: "return", unix.NFT_GOTO: "goto", unix.NFT_JUMP: "jump",
}
