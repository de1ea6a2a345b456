package explain

import (
	"fmt"
	"strings"
)

// Names of sets and chains of package ruleset from which reasons are derived.
const (
	setClusterIPs         = "cluster-ips"
	setNoEndpointServices = "no-endpoint-services"
	setNoEndpointPorts    = "no-endpoint-nodeports"
	setLocalhostPorts     = "localhost-nodeports"
	chainServices         = "services"
	chainExternalLocal    = "external-local"
	chainNodePortLocal    = "nodeport-local"
	chainNodePorts        = "nodeports"
	chainMasquerading     = "masquerading"
	prefixFirewall        = "firewall-"
	prefixExternal        = "external-"
	prefixNodePort        = "nodeport-"
	prefixAffinity        = "affinity-external."
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
	switch action := end.action; {
	case action == dropped && strings.HasPrefix(by, prefixFirewall):
		return Reason{SourceRange, fmt.Sprintf("loadBalancerSourceRanges of %s do not include %s", name, q.Source)}
	case action == rejected && (lastSet == setNoEndpointServices || lastSet == setNoEndpointPorts):
		return Reason{NoEndpoints, fmt.Sprintf("%s has no ready endpoint on any node", name)}
	case action == dropped && lastSet == setNoEndpointServices:
		return Reason{NoLocalEndpoints,
			fmt.Sprintf("%s has internalTrafficPolicy Local and no ready endpoint on this node", name)}
	case action == dropped && (by == chainExternalLocal || by == chainNodePortLocal):
		return Reason{NoLocalEndpoints,
			fmt.Sprintf("%s has externalTrafficPolicy Local and no ready endpoint on this node", name)}
	case action == rejected && lastSet == setClusterIPs:
		return Reason{UnknownPort, fmt.Sprintf("%s is a ClusterIP, but its Service has no port %d/%s",
			q.Destination.Addr(), q.Destination.Port(), protocolName(q.Protocol))}
	case action == dropped && by == chainServices:
		return Reason{UnallocatedAddress,
			fmt.Sprintf("%s is in a service CIDR, but no Service has it", q.Destination.Addr())}
	case action == rejected && lastSet == setLocalhostPorts:
		return Reason{Localhost, fmt.Sprintf("localhost does not serve NodePorts of %s", protocolName(q.Protocol))}
	case action == accepted && by == "" && q.Destination.Addr().IsLoopback():
		return Reason{Localhost, "rules do not translate packets to localhost; a program on this node answers"}
	case action == accepted && by == "" && name != "":
		return Reason{Damaged, fmt.Sprintf("the table has no row with an endpoint of %s", name)}
	case action == accepted && by == "":
		return Reason{NoService, fmt.Sprintf("no Service has %s/%s", q.Destination, protocolName(q.Protocol))}
	}
	return Reason{Unexplained, fmt.Sprintf("a rule of chain %s ends the walk", by)}
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
		strings.HasPrefix(by.chain, prefixAffinity):
		return Reason{ExternalPolicy, "externalTrafficPolicy is Cluster"}
	default:
		return Reason{Unexplained, "a rule of chain " + by.chain + " marks the packet"}
	}
}
