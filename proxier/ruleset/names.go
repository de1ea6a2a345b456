package ruleset

import "github.com/nftproxy/nftproxy/nft"

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
