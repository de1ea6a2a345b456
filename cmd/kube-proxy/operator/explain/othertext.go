package explain

import (
	"strconv"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// otherRuleText returns a rule of another program in nft syntax. Parts that are
// not understood are written as `…`.
func otherRuleText(f nft.Family, rule nft.RuleExpressions, set func(string) (*nft.Set, error)) string {
	w := ruleWriter{family: f, set: set, operands: make(map[int]operand)}
	for _, e := range rule.Expressions {
		w.writeOther(e)
	}
	if rule.Comment != "" {
		w.parts = append(w.parts, "comment "+strconv.Quote(rule.Comment))
	}
	return strings.Join(w.parts, " ")
}

const notUnderstood = "…"

func (w *ruleWriter) writeOther(e expr.Any) {
	switch e := e.(type) {
	case *nft.Extension:
		w.parts = append(w.parts, extensionText(e))
	case *nft.UnknownExpression:
		w.parts = append(w.parts, e.Name)
	case *expr.Counter: // says nothing about the fate of packets
	case *expr.Meta:
		switch {
		case e.SourceRegister:
			w.attempt(e)
		case e.Key == expr.MetaKeyNFPROTO:
			w.load(e.Register, operand{text: "meta nfproto", constant: nfprotoName})
		case metaName(e.Key) != "":
			w.load(e.Register, operand{text: metaName(e.Key), constant: interfaceText})
		default:
			w.attempt(e)
		}
	case *expr.Fib:
		w.load(e.Register, operand{text: fibText(e), constant: presenceText(e)})
	case *expr.Range:
		o := w.operand(e.Register)
		text := func(value []byte) string {
			if o.constant == nil {
				return w.prefix(value, nil)
			}
			return o.constant(value)
		}
		w.parts = append(w.parts, o.text+" "+text(e.FromData)+"-"+text(e.ToData))
	case *expr.Reject:
		w.parts = append(w.parts, rejectText(w.family, e))
	default:
		w.attempt(e)
	}
}

// attempt writes an expression like one of the proxy.
func (w *ruleWriter) attempt(e expr.Any) {
	if w.write(e) == nil {
		return
	}
	switch e := e.(type) {
	case *expr.Payload:
		w.load(e.DestRegister, operand{text: notUnderstood, constant: hexText})
	default:
		w.parts = append(w.parts, notUnderstood)
	}
}

// metaName returns the name of an interface in nft syntax, "" for other keys.
func metaName(key expr.MetaKey) string {
	switch key {
	case expr.MetaKeyOIFNAME:
		return "oifname"
	case expr.MetaKeyIIFNAME:
		return "iifname"
	}
	return ""
}

// nfprotoName returns an address family as nft writes it after `meta nfproto`.
func nfprotoName(value []byte) string {
	switch {
	case len(value) == 1 && value[0] == unix.NFPROTO_IPV4:
		return "ipv4"
	case len(value) == 1 && value[0] == unix.NFPROTO_IPV6:
		return "ipv6"
	}
	return hexText(value)
}

// fibText returns the question of a fib expression: `fib saddr . iif oif`.
func fibText(e *expr.Fib) string {
	text := "fib daddr"
	if e.FlagSADDR {
		text = "fib saddr"
	}
	for _, part := range []struct {
		is   bool
		name string
	}{
		{e.FlagMARK, " . mark"}, {e.FlagIIF, " . iif"}, {e.FlagOIF, " . oif"},
		{e.ResultOIF, " oif"}, {e.ResultOIFNAME, " oifname"}, {e.ResultADDRTYPE, " type"},
	} {
		if part.is {
			text += part.name
		}
	}
	return text
}

// presenceText returns how the result of a fib expression is written.
func presenceText(e *expr.Fib) func([]byte) string {
	if e.ResultADDRTYPE {
		return routeTypeName
	}
	return func(value []byte) string {
		switch {
		case e.FlagPRESENT && len(value) > 0 && value[0] == 0:
			return "missing"
		case e.FlagPRESENT:
			return "exists"
		}
		return integerText(value)
	}
}

func extensionText(e *nft.Extension) string {
	switch {
	case e.Target && e.Name == "REJECT":
		return "reject"
	case e.Target:
		return "xt target " + e.Name
	}
	return "xt match " + e.Name
}

func rejectText(f nft.Family, e *expr.Reject) string {
	with, err := rejection(f, e)
	switch {
	case e.Type == unix.NFT_REJECT_ICMPX_UNREACH:
		return "reject with icmpx code " + strconv.Itoa(int(e.Code))
	case err != nil:
		return "reject"
	}
	return "reject with " + with
}
