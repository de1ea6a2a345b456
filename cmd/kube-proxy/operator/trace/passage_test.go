package trace

import (
	"bytes"
	"fmt"
	"math/big"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/notify"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/test/script"
)

// ownTable is the name of the table in the tests of events.
const ownTable = "nftproxy-trace-1"

// Each second section of testdata/packets.txtar has the events of the section
// before it as they are printed for people.
//
// A line is an event: its ID, the family and name of the table ("own" is that
// of the trace), the chain, "policy", "return" or the handle of the rule, the
// verdict, and in the first event of a base chain SOURCE>DESTINATION with the
// numbers of both interfaces. A number alone is a time in milliseconds.
func TestPackets(t *testing.T) {
	events, wide := "", false
	script.Sections(t, "testdata/packets.txtar", func(name, section string) string {
		if events == "" {
			events, wide = section, strings.HasSuffix(name, " wide")
			return section
		}
		defer func() { events = "" }()
		return printed(t, events, wide)
	})
}

// printed returns what is printed for events, including passages that vanish
// at the end.
func printed(t *testing.T, events string, wide bool) string {
	t.Helper()
	start := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	now := start
	s := newPassages(ownTable)
	var ended []*passage
	for line := range strings.Lines(events) {
		fields := strings.Fields(line)
		switch len(fields) {
		case 0:
		case 1:
			now = start.Add(time.Duration(parseNumber(t, fields[0])) * time.Millisecond)
			ended = append(ended, s.expire(now)...)
		default:
			ended = append(ended, s.add(parseEvent(t, fields), now)...)
		}
	}
	ended = append(ended, s.expire(now.Add(patience))...)
	var b bytes.Buffer
	for _, p := range ended {
		packet := packetOf(p, ruleOf)
		packet.Interface = interfaceOf(p.first.In)
		if packet.Final != nil {
			packet.Final.Interface = interfaceOf(p.last.Out)
		}
		packet.explained(prediction())
		if packet.lost != 0 {
			packet.Reason = new(evidence).blame(packet.lost)
		}
		packet.Answer = packet.answer()
		packet.Print(&b, wide)
	}
	return b.String()
}

// ruleOf returns the rule of an event. Its handle determines its kind.
func ruleOf(e notify.TraceEvent) node.ChainRule {
	kind := e.Rule
	if !isProxy(e) {
		kind += 100
	}
	switch kind {
	case 1:
		return node.ChainRule{Text: "jump services"}
	case 2:
		return node.ChainRule{Text: "… meta priority vmap @class-chains"}
	case 3:
		return node.ChainRule{Text: "dnat ip to … map @service-targets", Translates: true}
	case 4:
		return node.ChainRule{Text: "reject with tcp reset", RejectWith: "TCP reset"}
	case 5:
		return node.ChainRule{Text: "masquerade fully-random", Masquerades: true}
	case 106:
		return node.ChainRule{Text: `xt match "tcp" reject`, RejectWith: "ICMP unreachable"}
	}
	return node.ChainRule{Text: "tcp dport 8080 " + e.Verdict.String()}
}

// prediction returns what package explain predicts for the packets.
func prediction() *explain.Result {
	reason := func(code ruleset.Code) ruleset.Reason {
		return ruleset.Reason{Code: code, Text: "of " + string(code)}
	}
	endpoint := netip.MustParseAddrPort("10.244.2.5:8080")
	return &explain.Result{
		Protocol: "tcp", ServicePort: "default/web:http", Answer: "the answer of explain",
		Outcomes: []explain.Outcome{
			{Action: explain.ToEndpoint, Endpoint: endpoint, Probability: big.NewRat(1, 2)},
			{Action: explain.ToEndpoint, Endpoint: endpoint, Masqueraded: true, Reason: reason("Hairpin")},
			{Action: explain.Reject, RejectWith: "TCP reset", Reason: reason(ruleset.NoEndpoints)},
		},
	}
}

func interfaceOf(index uint32) string {
	if index == 0 {
		return ""
	}
	return fmt.Sprintf("eth%d", index)
}

func parseEvent(t *testing.T, fields []string) notify.TraceEvent {
	t.Helper()
	e := notify.TraceEvent{ID: uint32(parseNumber(t, fields[0])), Family: nft.IPv4, Table: fields[2], Chain: fields[3]}
	if fields[1] == "inet" {
		e.Family = unix.NFPROTO_INET
	}
	if e.Table == "own" {
		e.Table = ownTable
	}
	switch fields[4] {
	case "policy":
		e.Type = notify.TracePolicy
	case "return":
		e.Type = notify.TraceReturn
	default:
		e.Type, e.Rule = notify.TraceRule, uint64(parseNumber(t, fields[4]))
	}
	verdict, chain, _ := strings.Cut(fields[5], ":")
	e.Verdict = map[string]nft.Verdict{
		"accept": nft.VerdictAccept, "drop": nft.VerdictDrop, "continue": nft.VerdictContinue,
		"queue":  nft.VerdictQueue,
		"stolen": nft.VerdictStolen, "jump": nft.VerdictJump(chain), "goto": nft.VerdictGoto(chain),
	}[verdict]
	if len(fields) > 6 {
		source, destination, _ := strings.Cut(fields[6], ">")
		e.Packet = &notify.TracedPacket{
			Protocol: unix.IPPROTO_TCP,
			Source:   netip.MustParseAddrPort(source), Destination: netip.MustParseAddrPort(destination),
			In: uint32(parseNumber(t, fields[7])), Out: uint32(parseNumber(t, fields[8])),
		}
	}
	return e
}

func parseNumber(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
