package ruleset

import "github.com/nftproxy/nftproxy/nft"

// OwnSet is the name of a set that the tables of other proxies do not have.
const OwnSet = "service-endpoints"

// BaseChainName returns the name of the base chain at a hook point.
func BaseChainName(point nft.HookPoint) string { return "nat-" + point.String() }
