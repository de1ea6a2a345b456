package ruleset

import (
	"cmp"
	"strings"
)

// Masquerade is a reason for which the receiver of a connection sees an address
// of this node instead of the client's.
type Masquerade string

// The reasons. Their values do not change between versions.
const (
	OutsideCluster Masquerade = "OutsideCluster" // a client outside the cluster uses a ClusterIP
	MasqueradeAll  Masquerade = "MasqueradeAll"  // as configured
	ExternalPolicy Masquerade = "ExternalPolicy" // externalTrafficPolicy Cluster
	FromNode       Masquerade = "FromNode"       // this node is the client
	Hairpin        Masquerade = "Hairpin"        // the endpoint is the client
)

// commentMasqueradeAll is the comment of the rule that marks packets because of
// Config.MasqueradeAll.
const commentMasqueradeAll = "masquerade all clusterIP traffic"

// MasqueradeBy returns the reason for which a rule of a chain masquerades
// packets or marks them for it. It is "" for a rule of another program.
func MasqueradeBy(chain, comment string) Masquerade {
	switch chain {
	case chainMasquerading: // the packet has no mark
		return Hairpin
	case chainExternalLocal, chainNodePortLocal:
		return FromNode
	case chainServices:
		if comment == commentMasqueradeAll {
			return MasqueradeAll
		}
		return OutsideCluster
	}
	b, ok := parseBalancer(chain)
	if ok && b.masquerades() || strings.HasPrefix(chain, affinityExternalPrefix) ||
		strings.HasPrefix(chain, portExternalPrefix) {
		return ExternalPolicy
	}
	return ""
}

// Text returns the reason for people.
func (m Masquerade) Text() string { return cmp.Or(masqueradeTexts[m], string(m)) }

var masqueradeTexts = map[Masquerade]string{
	OutsideCluster: "the client is not recognized as a pod of the cluster",
	MasqueradeAll:  "masqueradeAll is configured",
	ExternalPolicy: "externalTrafficPolicy is Cluster",
	FromNode:       "the client is this node",
	Hairpin:        "the client is the endpoint",
}
