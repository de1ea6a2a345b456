package ruleset

import (
	"strings"

	"github.com/nftproxy/nftproxy/nft"
)

// OwnSet is the name of a set that the tables of other proxies do not have.
const OwnSet = "service-targets"

// BaseChainName returns the name of the base chain at a hook point.
func BaseChainName(point nft.HookPoint) string { return "nat-" + point.String() }

// NodePortSet is the name of a map with a row for each NodePort.
const NodePortSet = "nodeport-classes"

// allEndpointsPrefix is the prefix of the names of the maps that lead packets
// of pods and of this node to all endpoints under externalTrafficPolicy Local.
const allEndpointsPrefix = "cluster-policy-"

// LeadsToAllEndpoints reports whether a set has the name of a map that leads
// packets of pods and of this node to all endpoints, although
// externalTrafficPolicy is Local.
func LeadsToAllEndpoints(set string) bool { return strings.HasPrefix(set, allEndpointsPrefix) }

// RejectsOnLocalhost reports whether a chain has the name of the chain that
// rejects packets to NodePorts that localhost does not serve.
func RejectsOnLocalhost(chain string) bool { return chain == chainLocalhost }
