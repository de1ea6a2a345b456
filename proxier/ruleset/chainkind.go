package ruleset

import "github.com/nftproxy/nftproxy/proxier/cluster"

// chainKind is the kind of a chain that draws one of the targets of a frontend.
//
// Balancers have all kinds. Service ports with the same number of rows share
// them. The chains of one service port have the kinds toExternal, toAll and
// toLocal only (see ownKind): VIPs and NodePorts share these chains, because
// their targets do not depend on the frontend. Packets that need a check of
// source ranges or of the client of a ClusterIP have passed it before.
type chainKind uint8

const (
	toClusterIP     chainKind = iota // a ClusterIP
	toExternal                       // an external IP or LoadBalancer IP, masqueraded
	toGuarded                        // the same with loadBalancerSourceRanges
	toNodePort                       // a NodePort, masqueraded
	toLocal                          // a VIP with externalTrafficPolicy Local: endpoints of this node
	toAll                            // the same: all endpoints
	toNodePortLocal                  // a NodePort with externalTrafficPolicy Local: endpoints of this node
	toNodePortAll                    // the same: all endpoints
	chainKinds
)

// kinds describe what the kinds of chains do with packets.
var kinds = [chainKinds]struct {
	name       string // prefix of the names of balancers
	first      string // chain that packets pass first, "" for none
	masquerade bool
	to         pick
	index      uint32 // of the first target
}{
	toClusterIP:     {"balance-", chainOutsideCluster, false, pickVIP, firstIndex},
	toExternal:      {"external-", "", true, pickVIP, firstIndex},
	toGuarded:       {"guarded-", chainFirewall, true, pickVIP, firstIndex},
	toNodePort:      {"nodeport-", "", true, pickNodePort, firstIndex},
	toLocal:         {"local-", "", false, pickVIP, firstIndex},
	toAll:           {"all-", "", false, pickVIP, allIndex},
	toNodePortLocal: {"nodeport-local-", "", false, pickNodePort, firstIndex},
	toNodePortAll:   {"nodeport-all-", "", false, pickNodePort, allIndex},
}

// pick is a chain that looks targets up, and the chains in front of it: drawn
// for draws of one of several targets (see afterDraw), and retry for those
// that are repeated (see retry.go). mask has the bits of the number that do not
// belong to the index of a target in its list.
type pick struct {
	chain, drawn, retry string
	mask                uint32
}

var (
	pickVIP      = pick{chainPick, chainDrawn, chainRetry, ^uint32(maxRows)}
	pickNodePort = pick{chainPickNodePort, chainDrawnNodePort, chainRetryNodePort, ^uint32(maxRows)}
	pickPort     = pick{chainPickPort, chainDrawnPort, chainRetryPort, ^uint32(localIndex - 1)}
)

// picks returns all of them.
func picks() []pick { return []pick{pickVIP, pickNodePort, pickPort} }

// rowBits is the number of bits of the index of a target below the bit that
// allIndex adds.
const rowBits = 24

// The index of the first target, and of the first one of all endpoints under
// externalTrafficPolicy Local. nft writes a class of 0 in another way.
const (
	firstIndex = 1
	allIndex   = firstIndex + 1<<rowBits
)

// policy returns the traffic policy whose endpoints the chains of a kind lead
// to. It does not apply to toClusterIP: a ClusterIP with internalTrafficPolicy
// Local has the rows of the endpoints of this node.
func (k chainKind) policy() cluster.Policy {
	if k == toLocal || k == toNodePortLocal {
		return cluster.PolicyLocal
	}
	return cluster.PolicyCluster
}

// ownKind returns the kind of a chain of one service port for traffic with a
// policy that is not masqueraded.
func ownKind(policy cluster.Policy) chainKind {
	if policy == cluster.PolicyLocal {
		return toLocal
	}
	return toAll
}

// ownKind returns the kind of the chain of a service port that selects an
// endpoint for a frontend's traffic. With externalTrafficPolicy Local, this is
// the traffic that may use the endpoints of this node only.
func (f ServedFrontend) ownKind() chainKind {
	if f.Policy == cluster.PolicyLocal || f.IsClusterIP() {
		return ownKind(f.Policy)
	}
	return toExternal
}

// splitsClients reports whether externalTrafficPolicy Local applies to a
// frontend: which endpoints a client may use depends on where it is.
func (f ServedFrontend) splitsClients() bool {
	return f.Policy == cluster.PolicyLocal && !f.IsClusterIP()
}
