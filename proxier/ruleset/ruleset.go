// Package ruleset computes the nftables table "kube-proxy" of one address
// family. It performs no I/O.
//
// The table consists of a program and of rows. The program is a number of sets
// and chains that depend on the node and its configuration only (see
// Ruleset.MakeProgram). The rows are elements of the sets. They depend on
// Services and endpoints: a Plan contains the frontends and the endpoints of
// one service port, and Ruleset.Rows returns the rows of a Plan. For example, a
// Service default/web with ClusterIP 10.96.0.10, port 80 and three endpoints is
//
//	set cluster-ips        10.96.0.10
//	map service-classes    10.96.0.10 . tcp . 80 comment "default/web:http" : 0:3
//	map service-targets    10.96.0.10 . tcp . 80 . 0:1 : 10.244.1.5 . 8080
//	                       10.96.0.10 . tcp . 80 . 0:2 : 10.244.2.5 . 8080
//	                       10.96.0.10 . tcp . 80 . 0:3 : 10.244.3.5 . 8080
//
// 0:3 is the Class of the frontend. A row of the map class-chains leads from it
// to the chain balance-3, a balancer, which all service ports with three
// endpoints share. It passes the index of a row to the chain pick in the
// priority of the packet:
//
//	meta priority set numgen random mod 3 offset 1 goto pick
//	dnat ip to ip daddr . meta l4proto . th dport . meta priority map @service-targets
//
// Only two kinds of chains depend on Services: balancers, one for each number
// of endpoints that was in use, and the chains of service ports with session
// affinity or with a number.
package ruleset

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
)

// Ruleset computes the table of one address family: its program from the
// configuration of the node, and its rows from plans. It must not be used by
// several goroutines at a time, because it reuses buffers.
type Ruleset struct {
	config     *Config
	layout     *layout
	timeouts   Timeouts
	candidates []candidate // of the plan that is being made
}

// New returns the Ruleset of an address family.
func New(config Config, family nft.Family) (*Ruleset, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if !family.Valid() {
		return nil, fmt.Errorf("address family %d is not supported", family)
	}
	return &Ruleset{config: &config, layout: newLayout(family)}, nil
}

// Family returns the address family of the table.
func (r *Ruleset) Family() nft.Family { return r.layout.family }

// AffinitySets returns the sets of clients with session affinity. They are not
// part of the program: a set is created when the first service port needs it.
func (r *Ruleset) AffinitySets() []*nft.Set { return r.layout.affinity[:] }

// SourceSets returns the sets of source ranges that are used, by length of
// their prefixes. They are part of a program that uses them.
func (r *Ruleset) SourceSets(used func(*nft.Set) bool) (sets []*nft.Set) {
	for _, s := range r.layout.firewallSources {
		if used(s) {
			sets = append(sets, s)
		}
	}
	return sets
}

// IsShared reports whether several service ports can have the same row of a
// set: a ClusterIP with several ports, or an endpoint of several Services. Rows
// of all other sets belong to one service port.
func (r *Ruleset) IsShared(s *nft.Set) bool {
	return s == r.layout.clusterIPs || s == r.layout.hairpin
}

// ReservedIDs returns the row that reserves the ids of session affinity below
// next.
func (r *Ruleset) ReservedIDs(next uint32) nft.Row {
	return nft.Row{Set: r.layout.reservedIDs, Key: nft.Tuple{}.Integer(next)}
}

// ReservedBelow returns the id below which a row of ReservedIDs reserves ids.
func ReservedBelow(r nft.Row) uint32 { return r.Key.FirstInteger() }

// OwnSet is the name of a set that the tables of other proxies do not have.
const OwnSet = "service-targets"

// BaseChainName returns the name of the base chain at a hook point.
func BaseChainName(point nft.HookPoint) string { return "nat-" + point.String() }

// NodePortSet is the name of a map with a row for each NodePort.
const NodePortSet = "nodeport-classes"

// allEndpointsPrefix is the prefix of the names of the maps that lead packets
// of pods and of this node to all endpoints under externalTrafficPolicy Local.
const allEndpointsPrefix = "cluster-policy-"

// affinitySetPrefix is the prefix of the names of the affinity sets. It is not
// "affinity-", because kube-proxy tries to delete all sets with that prefix.
const affinitySetPrefix = "sticky-clients-"

// sourceSetPrefix is the prefix of the names of the sets of source ranges.
// There is one set for each length of a prefix, because the kernel takes
// quadratic time to change a set with ranges of different lengths.
const sourceSetPrefix = "firewall-sources-"

// Names of chains that rows and rules refer to.
const (
	chainFirewall       = "firewall"
	chainOutsideCluster = "outside-cluster"
	chainServices       = "services"
	chainNodePorts      = "nodeports"
	chainServiceChains  = "service-chains"
	chainNodePortChains = "nodeport-chains"
	chainExternalLocal  = "external-local"
	chainExternalAll    = "external-all"
	chainNodePortLocal  = "nodeport-local"
	chainNodePortAll    = "nodeport-all"
	chainPick           = "pick"
	chainPickNodePort   = "pick-nodeport"
	chainPickPort       = "pick-port"
	chainDrawn          = "drawn"
	chainDrawnNodePort  = "drawn-nodeport"
	chainDrawnPort      = "drawn-port"
	chainRetry          = "retry"
	chainRetryNodePort  = "retry-nodeport"
	chainRetryPort      = "retry-port"
	chainMasquerading   = "masquerading"
	chainLocalhost      = "reject-localhost"
)

// The functions below decode names and rules that were found in a table (see
// rows.go for rows).

// ServiceCIDRsOf returns the service CIDRs in which the rules of a base chain
// drop packets to unallocated addresses.
func ServiceCIDRsOf(f nft.Family, rules []nft.Rule) (cidrs []netip.Prefix) {
	for _, rule := range rules {
		if p, ok := rule.Prefix(nft.Daddr(f)); ok && rule.Target() == UnallocatedAddress.name() {
			cidrs = append(cidrs, p)
		}
	}
	return cidrs
}

// MasqueradeBy returns the reason for which a rule of a chain masquerades
// packets or marks them for it. It is "" for a rule of another program.
func MasqueradeBy(chain, comment string) Code {
	switch chain {
	case chainMasquerading: // the packet has no mark
		return Hairpin
	case chainExternalLocal, chainNodePortLocal:
		return FromNode
	case chainOutsideCluster:
		if comment == commentMasqueradeAll {
			return MasqueradeAll
		}
		return OutsideCluster
	}
	for k := range chainKinds {
		if kinds[k].masquerade && strings.HasPrefix(chain, kinds[k].name) {
			return ExternalPolicy
		}
	}
	if strings.HasPrefix(chain, affinityPrefixes[toExternal]) || strings.HasPrefix(chain, portPrefixes[toExternal]) {
		return ExternalPolicy
	}
	return ""
}

// RejectsOnLocalhost reports whether a chain has the name of the chain that
// rejects packets to NodePorts that localhost does not serve.
func RejectsOnLocalhost(chain string) bool { return chain == chainLocalhost }

// RefusalOf returns the reason whose packets a counter counts. ok is false for
// another counter.
func RefusalOf(counter string) (r Code, ok bool) {
	for r, name := range refusalNames {
		if name == counter {
			return r, true
		}
	}
	return "", false
}

// LeadsToAllEndpoints reports whether a set has the name of a map that leads
// packets of pods and of this node to all endpoints, although
// externalTrafficPolicy is Local.
func LeadsToAllEndpoints(set string) bool { return strings.HasPrefix(set, allEndpointsPrefix) }
