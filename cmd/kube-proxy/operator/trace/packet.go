package trace

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Packet is the fate of a real packet.
type Packet struct {
	Time        time.Time      `json:"time"`
	Protocol    string         `json:"protocol"`
	Source      netip.AddrPort `json:"source"`
	Destination netip.AddrPort `json:"destination"`
	// Hook is where the packet entered the tables: prerouting or output.
	Hook string `json:"hook"`
	// Interface is the one on which the packet arrived, "" for packets of this
	// node.
	Interface string `json:"interface,omitempty"`
	// ServicePort is the namespace/name:port to which the destination belongs,
	// "" if it belongs to none.
	ServicePort string `json:"servicePort,omitempty"`
	// Answer is the fate in one line.
	Answer string         `json:"answer"`
	Action explain.Action `json:"action"`
	// Endpoint is the address to which the packet was translated. A packet can
	// be dropped or lost afterwards.
	Endpoint netip.AddrPort `json:"endpoint,omitzero"`
	// Masqueraded reports whether the proxy's rules changed the source address.
	Masqueraded bool `json:"masqueraded"`
	// Repeated reports whether the connection was known: the packet followed
	// the translation of an earlier one and passed no rule of the proxy.
	Repeated bool `json:"repeated,omitempty"`
	// AtEndpoint reports whether the packet arrived with the address of an
	// endpoint on this node as its destination: another node translated it, or
	// the client connected to the endpoint itself.
	AtEndpoint bool           `json:"atEndpoint,omitempty"`
	RejectWith string         `json:"rejectWith,omitempty"`
	Reason     ruleset.Reason `json:"reason,omitzero"`
	// Route is the cause why a packet that passed all chains, or the answer to
	// it, does not arrive. It is zero if this node knows none.
	Route ruleset.Reason `json:"route,omitzero"`
	// Final describes the packet when it left the chains, nil if it did not.
	Final *Final `json:"final,omitempty"`
	// Reply is what came back for a TCP packet that was sent to an endpoint.
	Reply *Reply `json:"reply,omitempty"`
	// Ejected are the endpoints that the service port avoids because they do
	// not answer.
	Ejected []cluster.Ejection `json:"ejected,omitempty"`
	// Explain is the answer of package explain if the outcome is none of those
	// that it predicts.
	Explain string `json:"explain,omitempty"`
	// Steps are the rules that the packet matched, in their order.
	Steps []Step `json:"steps"`

	protocol cluster.Protocol
	lost     stage // at which the packet was lost
}

// Final describes a packet after all rules.
type Final struct {
	Source      netip.AddrPort `json:"source"`
	Destination netip.AddrPort `json:"destination"`
	// Interface is the one to which the packet was sent, "" if this node
	// received it.
	Interface string `json:"interface,omitempty"`
}

// Actions of packets, besides the actions of package explain.
const (
	Lost  explain.Action = "lost"  // no chain reports the packet any more
	Taken explain.Action = "taken" // another program or another part of the kernel has the packet
)

// Step is a rule that a packet matched, or the policy of a base chain.
type Step struct {
	// Table is the family and the name of the table.
	Table string `json:"table"`
	Chain string `json:"chain"`
	// Handle is the number of the rule, 0 for the policy.
	Handle uint64 `json:"handle,omitempty"`
	// Rule is the rule in nft syntax. In rules of other tables, "…" is a part
	// that is not understood.
	Rule string `json:"rule,omitempty"`
	// Verdict is the verdict of the rule, or the policy.
	Verdict string `json:"verdict"`
}

// Print writes the packet for people: first the answer, then the walk. Unless
// wide is set, it leaves out rules that only lead to another chain, and rules
// of other tables that do not decide.
func (k *Packet) Print(w io.Writer, wide bool) {
	from := " (node)"
	if k.Interface != "" {
		from = " through " + k.Interface
	}
	fmt.Fprintf(w, "%s  %s/%s from %s%s", k.Time.Format("15:04:05.000"), k.Destination, k.Protocol, k.Source, from)
	if k.ServicePort != "" {
		fmt.Fprintf(w, " → %s", k.ServicePort)
	}
	fmt.Fprintf(w, "\n\nANSWER  %s%s\n", k.Answer, k.Reason.CodeText())
	if k.Action != explain.ToEndpoint {
		explain.PrintRemedy(w, k.Reason.Remedy)
	}
	if k.Route.Code != "" {
		fmt.Fprintf(w, "ROUTE   %s%s\n", k.Route.Text, k.Route.CodeText())
		explain.PrintRemedy(w, k.Route.Remedy)
	}
	for _, e := range k.Ejected {
		fmt.Fprintf(w, "UNUSED  %s  %s\n", e.Endpoint, e)
	}
	if k.Explain != "" {
		fmt.Fprintf(w, "EXPLAIN now: %s\n", k.Explain)
	}
	if k.Final != nil {
		fmt.Fprintf(w, "SENT    %s\n", k.Final)
	}
	if k.Reply != nil {
		fmt.Fprintf(w, "REPLY   %s\n", k.Reply)
	}
	shown := func(s Step) bool { return wide || s.decides() }
	explain.PrintWalk(w, k.Steps, shown, Step.place, func(s Step) { fmt.Fprintf(w, "    %s\n", s) })
}

// String returns the packet as it left the chains.
func (f *Final) String() string {
	if f.Interface == "" {
		return fmt.Sprintf("%s → %s to this node", f.Source, f.Destination)
	}
	return fmt.Sprintf("%s → %s through %s", f.Source, f.Destination, f.Interface)
}

// isProxy reports whether the step is of the proxy's table.
func (s Step) isProxy() bool {
	_, name, _ := strings.Cut(s.Table, " ")
	return name == ruleset.TableName
}

// place returns the chain, with its table unless that is the proxy's.
func (s Step) place() string {
	if s.isProxy() {
		return s.Chain
	}
	return fmt.Sprintf("table %s, chain %s", s.Table, s.Chain)
}

// decides reports whether the step does more than to lead to the next one.
func (s Step) decides() bool {
	verdict, _, _ := strings.Cut(s.Verdict, " ")
	switch {
	case s.Handle == 0:
		return verdict != "accept"
	case s.isProxy():
		return !strings.HasPrefix(s.Rule, "jump ")
	}
	return verdict != "jump" && verdict != "goto" && verdict != "continue" && verdict != "return"
}

// String returns the rule, with its verdict unless its text ends with that.
func (s Step) String() string {
	switch {
	case s.Handle == 0:
		return "policy " + s.Verdict
	case s.isProxy() && !strings.Contains(s.Rule, " vmap @"):
		return s.Rule
	case s.isProxy():
		return s.Rule + " → " + s.Verdict
	}
	text := fmt.Sprintf("%s (handle %d)", s.Rule, s.Handle)
	if strings.HasSuffix(s.Rule, s.Verdict) || strings.Contains(s.Rule, "reject") || s.Verdict == "continue" {
		return text
	}
	return text + " → " + s.Verdict
}
