package leftovers

import (
	"slices"
	"strings"
)

// tables are the tables in which kube-proxy creates chains, as iptables names
// them.
var tables = []string{"filter", "nat", "mangle"}

// fixedChains are the chains with constant names that kube-proxy v1.36
// creates in the iptables or the IPVS mode, by table.
var fixedChains = map[string][]string{
	"nat": {
		"KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", markMasquerade, "KUBE-PROXY-CANARY",
		"KUBE-NODE-PORT", "KUBE-LOAD-BALANCER", // IPVS
	},
	"filter": {
		"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-FORWARD",
		"KUBE-PROXY-FIREWALL", "KUBE-PROXY-CANARY",
		"KUBE-NODE-PORT", "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER", // IPVS
	},
	"mangle": {"KUBE-PROXY-CANARY"},
}

// markMasquerade is the chain that marks packets for masquerading. CNI
// plugins use it (portmap: externalSetMarkChain).
const markMasquerade = "KUBE-MARK-MASQ"

// hashedChains are the prefixes of kube-proxy's chains for service ports and
// endpoints, in the table nat. A base32 hash of hashLength characters
// follows.
var hashedChains = []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-FW-", "KUBE-EXT-", "KUBE-SEP-"}

const hashLength = 16

// entryChains are the chains to which kube-proxy's rules in built-in chains
// jump.
var entryChains = []string{
	"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-FORWARD",
	"KUBE-PROXY-FIREWALL", "KUBE-POSTROUTING",
	"KUBE-NODE-PORT", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER", // IPVS
}

// builtInChains are the built-in chains of iptables.
var builtInChains = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// isLeftoverChain reports whether kube-proxy creates chains of this name in
// the table.
func isLeftoverChain(table, chain string) bool {
	return slices.Contains(fixedChains[table], chain) || table == "nat" && hashedChain(chain)
}

func hashedChain(chain string) bool {
	for _, prefix := range hashedChains {
		if hash, ok := strings.CutPrefix(chain, prefix); ok {
			return len(hash) == hashLength && strings.Trim(hash, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
		}
	}
	return false
}

// isLeftoverJump reports whether a rule of the table is a rule of kube-proxy
// that jumps from a built-in chain to one of its chains.
func isLeftoverJump(table string, r rule) bool {
	return slices.Contains(builtInChains, r.chain) && slices.Contains(entryChains, r.target) &&
		isLeftoverChain(table, r.target)
}
