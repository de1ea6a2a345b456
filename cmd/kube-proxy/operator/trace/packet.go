package trace

import (
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
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
	Repeated   bool           `json:"repeated,omitempty"`
	RejectWith string         `json:"rejectWith,omitempty"`
	Reason     explain.Reason `json:"reason,omitzero"`
	// Final describes the packet when it left the chains, nil if it did not.
	Final *Final `json:"final,omitempty"`
	// Explain is the answer of package explain if the outcome is none of those
	// that it predicts.
	Explain string `json:"explain,omitempty"`
	// Steps are the rules that the packet matched, in their order.
	Steps []Step `json:"steps"`
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
