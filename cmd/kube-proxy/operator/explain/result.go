package explain

import (
	"math/big"
	"net/netip"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Result is the fate of a packet.
type Result struct {
	Destination netip.AddrPort `json:"destination"`
	Protocol    string         `json:"protocol"`
	Source      netip.Addr     `json:"source"`
	// From is pod, node or outside, if the query describes the source so.
	From string `json:"from,omitempty"`
	// Hook is where the packet enters the table: prerouting or output.
	Hook string `json:"hook"`
	// ServicePort is the namespace/name:port to which the destination belongs,
	// "" if it belongs to none.
	ServicePort string `json:"servicePort,omitempty"`
	// Frontend is the kind of the destination, such as ClusterIP. It is "" if
	// no running proxy was asked.
	Frontend string `json:"frontend,omitempty"`
	// Answer is the fate in one line.
	Answer string `json:"answer"`
	// Remedy is what to do if the packet reaches no endpoint.
	Remedy string `json:"remedy,omitempty"`
	// Outcomes are the possible fates with their probabilities. The sum of
	// these is 1.
	Outcomes []Outcome `json:"outcomes"`
	// Unused are the endpoints of the service port that the packet cannot
	// reach. They are unknown if no running proxy was asked.
	Unused []Unused `json:"unused,omitempty"`
	// Difference is nil if the table that the proxy wants treats the packet
	// like the one in the kernel, or if no proxy was asked.
	Difference *Difference `json:"difference,omitempty"`
	// Ways are the ways to the endpoints of the outcomes.
	Ways []Way `json:"ways,omitempty"`
	// OtherTables are the effects of rules of other programs on the packets of
	// the outcomes, or their answers.
	OtherTables []node.Effect `json:"otherTables,omitempty"`
	// Stopped is the number of outcomes whose packets, or their answers, these
	// rules certainly stop.
	Stopped int `json:"stopped,omitempty"`
	// Notes are further facts, as sentences.
	Notes []string `json:"notes,omitempty"`
	// Walk are the rules that the packet reaches, in their order.
	Walk []*Step `json:"walk"`
}

// Action is the kind of an outcome.
type Action string

// Actions.
const (
	ToEndpoint Action = "endpoint" // the packet is translated to an endpoint
	Reject     Action = "reject"   // the client gets an error
	Drop       Action = "drop"     // the client gets no answer
	Pass       Action = "pass"     // the packet is not translated
)

// Outcome is a possible fate of a packet.
type Outcome struct {
	Action      Action   `json:"action"`
	Probability *big.Rat `json:"probability"`
	// Endpoint is the address to which the packet is translated.
	Endpoint netip.AddrPort `json:"endpoint,omitzero"`
	// Masqueraded reports whether the receiver sees an address of this node
	// instead of the source.
	Masqueraded bool `json:"masqueraded"`
	// RejectWith is the error that the client gets.
	RejectWith string `json:"rejectWith,omitempty"`
	// Affinity is "known" for a client whom session affinity leads to the
	// endpoint, "new" for one that it will lead there from now on.
	Affinity string `json:"affinity,omitempty"`
	// Reason is the reason for a refusal, or for masquerading.
	Reason ruleset.Reason `json:"reason,omitzero"`
}

// Step is a rule that a packet reached.
type Step struct {
	Chain string `json:"chain"`
	// Rule is the rule in nft syntax.
	Rule string `json:"rule"`
	// Matched is the probability that the packet matches all of the rule.
	Matched *big.Rat `json:"matched"`
	// Lookups are the keys that the rule looked up, and the rows it found.
	Lookups []Lookup `json:"lookups,omitempty"`
}

// Lookup is a key that a rule looked up in a set or map.
type Lookup struct {
	Set string `json:"set"`
	Key string `json:"key"`
	// Row is the row in nft syntax, "" if the set has none.
	Row string `json:"row,omitempty"`
}

// stepsOf returns the steps of a walk through a table of a family.
func stepsOf(f nft.Family, w *walk.Walk) (steps []*Step) {
	for _, s := range w.Steps {
		step := &Step{Chain: s.Chain, Rule: s.Rule.Text(f), Matched: s.Matched}
		for _, l := range s.Lookups {
			lookup := Lookup{Set: l.Key.Set.Name, Key: l.Key.KeyText()}
			if l.Found.Set != nil {
				lookup.Row = l.Found.Text()
			}
			step.Lookups = append(step.Lookups, lookup)
		}
		steps = append(steps, step)
	}
	return steps
}

// Desired is what a running proxy knows about the fate of a packet.
type Desired struct {
	// Outcomes are the fates of the packet in the table that the proxy wants.
	Outcomes []Outcome `json:"outcomes"`
	// ServicePort is the namespace/name:port that owns the destination, ""
	// if none does, and Frontend the kind of the destination.
	ServicePort string `json:"servicePort,omitempty"`
	Frontend    string `json:"frontend,omitempty"`
	// Unused are the endpoints that the packet cannot reach.
	Unused []Unused `json:"unused,omitempty"`
	// Forwarder is nil unless the proxy itself serves the destination.
	Forwarder *Forwarder `json:"forwarder,omitempty"`
	// HealthCheck is the reason why a packet to a health-check NodePort is not
	// translated.
	HealthCheck ruleset.Reason `json:"healthCheck,omitzero"`
	// Lack is why the service port has no endpoint for the packet.
	Lack ruleset.Lack `json:"lack,omitzero"`
	// Pending is why the kernel may not have the table yet, "" if it should
	// have it.
	Pending string `json:"pending,omitempty"`
	// Notes are other facts about the service port, as sentences.
	Notes []string `json:"notes,omitempty"`
}

// Unused is an endpoint that a packet cannot reach.
type Unused struct {
	ruleset.EndpointPlace
	// Reason identifies the reason, Text is for people.
	Reason ruleset.Code `json:"reason"`
	Text   string       `json:"text"`
}

// Forwarder describes how the proxy itself serves a NodePort on localhost.
type Forwarder struct {
	// Endpoints are those that it chooses from at random.
	Endpoints []netip.AddrPort `json:"endpoints,omitempty"`
	// Affinity is "new" if it will use the same endpoint for some time, and
	// "known" if Endpoints has only this one.
	Affinity string `json:"affinity,omitempty"`
	// Closed is the reason why the port is closed. It is zero if the port is
	// open.
	Closed ruleset.Reason `json:"closed,omitzero"`
}

// Difference is how the proxy wants the packet to be treated, if the kernel
// treats it in another way.
type Difference struct {
	Desired string `json:"desired"` // the answer
	// Meaning explains the difference, in sentences without the last period.
	Meaning string `json:"meaning"`
}
