package explain

import (
	"fmt"
	"strings"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Names of sets and chains of package ruleset from which reasons are derived.
const (
	setNoEndpointServices = "no-endpoint-services"
	setLocalhostPorts     = "localhost-nodeports"
	chainServices         = "services"
	chainExternalLocal    = "external-local"
	chainNodePortLocal    = "nodeport-local"
	chainNodePorts        = "nodeports"
	chainMasquerading     = "masquerading"
	prefixExternal        = "external-"
	prefixNodePort        = "nodeport-"
	prefixAffinity        = "affinity-external."
	prefixNumber          = "port-external-"
)

// servicePort returns the name of the service port that a path's packet is for:
// the comment of the last dispatch row.
func (p *path) servicePort() (name string) {
	for _, row := range p.rows {
		if row.Comment != "" {
			name = row.Comment
		}
	}
	return name
}

// refusal returns the reason why a path does not end at an endpoint. It follows
// from the rule that ended the path and from the last row that it found.
func (p *path) refusal(q *Query) Reason {
	end := p.dispatched
	if p.end.action != accepted {
		end = p.end
	}
	lastSet := ""
	if len(p.rows) > 0 {
		lastSet = p.rows[len(p.rows)-1].Set.Name
	}
	name, by := p.servicePort(), end.by.chain
	switch code := p.countedReason(end.action); {
	case name != "" && (code == UnknownPort || code == UnallocatedAddress):
		return damagedReason(name)
	case code != "":
		return Reason{code, p.reasonText(code, name, lastSet, q)}
	}
	switch action := end.action; {
	case action == rejected && lastSet == setLocalhostPorts:
		return Reason{Localhost, fmt.Sprintf("localhost does not serve NodePorts of %s", ProtocolName(q.Protocol))}
	case action == accepted && by == "" && q.Destination.Addr().IsLoopback():
		return Reason{Localhost, "rules do not translate packets to localhost; a program on this node answers"}
	case action == accepted && by == "" && name != "":
		return damagedReason(name)
	case action == accepted && by == "":
		return Reason{NoService, fmt.Sprintf("no Service has %s/%s", q.Destination, ProtocolName(q.Protocol))}
	}
	return Reason{Unexplained, fmt.Sprintf("a rule of chain %s ends the walk", by)}
}

// damagedReason returns the reason why a packet that a dispatch row leads to a
// balancer is not translated. If it is for a ClusterIP, it is rejected.
func damagedReason(servicePort string) Reason {
	return Reason{Damaged, "the table has no row with an endpoint of " + servicePort}
}

// countedReason returns the reason for which a packet was counted before it was
// rejected or dropped, "" if there is none.
func (p *path) countedReason(end action) ReasonCode {
	r, ok := ruleset.ReasonOf(p.counted)
	if ok && (end == rejected && r.Rejects() || end == dropped && !r.Rejects()) {
		return ReasonCode(r)
	}
	return ""
}

// reasonText explains a reason that has a counter. name is the name of the
// service port, lastSet that of the set with the last row that was found.
func (p *path) reasonText(code ReasonCode, name, lastSet string, q *Query) string {
	switch code {
	case NoEndpoints:
		return fmt.Sprintf("%s has no ready endpoint on any node", name)
	case NoLocalEndpoints:
		policy := "externalTrafficPolicy"
		if lastSet == setNoEndpointServices {
			policy = "internalTrafficPolicy"
		}
		return fmt.Sprintf("%s has %s Local and no ready endpoint on this node", name, policy)
	case UnknownPort:
		return fmt.Sprintf("%s is a ClusterIP, but its Service has no port %d/%s",
			q.Destination.Addr(), q.Destination.Port(), ProtocolName(q.Protocol))
	case UnallocatedAddress:
		return fmt.Sprintf("%s is in a service CIDR, but no Service has it", q.Destination.Addr())
	default:
		return fmt.Sprintf("loadBalancerSourceRanges of %s do not include %s", name, q.Source)
	}
}

// masqueradeReason returns the reason why a path's packet is masqueraded. It
// follows from the rule that marked the packet, or from the rule that
// masquerades it.
func (p *path) masqueradeReason() Reason {
	switch by := *p.end.masquerading; {
	case by.chain == chainMasquerading:
		return Reason{Hairpin, "the client is the endpoint"}
	case by.chain == chainExternalLocal, by.chain == chainNodePortLocal:
		return Reason{FromNode, "the client is this node"}
	case by.chain == chainServices && strings.Contains(by.comment, "all clusterIP traffic"):
		return Reason{MasqueradeAll, "masqueradeAll is configured"}
	case by.chain == chainServices:
		return Reason{OutsideCluster, "the client is not recognized as a pod of the cluster"}
	case strings.HasPrefix(by.chain, prefixExternal), strings.HasPrefix(by.chain, prefixNodePort),
		strings.HasPrefix(by.chain, prefixAffinity), strings.HasPrefix(by.chain, prefixNumber):
		return Reason{ExternalPolicy, "externalTrafficPolicy is Cluster"}
	default:
		return Reason{Unexplained, "a rule of chain " + by.chain + " marks the packet"}
	}
}
