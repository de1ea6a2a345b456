package leftovers

import (
	"slices"
	"strings"
)

// tables are the tables in which kube-proxy makes chains, as iptables names them.
var tables = []string{"filter", "nat", "mangle"}

// fixedChains are the chains of a constant name that kube-proxy v1.36 makes in each table, in the iptables or in the IPVS mode.
var fixedChains = map[string][]string{
	"nat": {
		"KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", markMasquerade, "KUBE-PROXY-CANARY",
		"KUBE-NODE-PORT", "KUBE-LOAD-BALANCER", // IPVS
	},
	"filter": {
		"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-FORWARD", "KUBE-PROXY-FIREWALL", "KUBE-PROXY-CANARY",
		"KUBE-NODE-PORT", "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER", // IPVS
	},
	"mangle": {"KUBE-PROXY-CANARY"},
}

// markMasquerade is the chain that marks packets for masquerading. Plugins of other projects use it (portmap: externalSetMarkChain).
const markMasquerade = "KUBE-MARK-MASQ"

// hashedChains are the beginnings of the names of chains that kube-proxy makes for service ports and endpoints, in the table nat.
// hashLength characters of a base32 hash follow.
var hashedChains = []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-FW-", "KUBE-EXT-", "KUBE-SEP-"}

const hashLength = 16

// entryChains are the chains that kube-proxy's rules in built-in chains jump to.
var entryChains = []string{
	"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-FORWARD", "KUBE-PROXY-FIREWALL", "KUBE-POSTROUTING",
	"KUBE-NODE-PORT", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER", // IPVS
}

// builtInChains are the chains of iptables that packets come to by themselves, and into which kube-proxy puts rules.
var builtInChains = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// ownedChain says whether kube-proxy makes chains of this name in the table.
func ownedChain(table, chain string) bool {
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

// ownedJump says whether a rule of the table is one by which kube-proxy's chains are entered.
func ownedJump(table string, r rule) bool {
	return slices.Contains(builtInChains, r.chain) && slices.Contains(entryChains, r.target) && ownedChain(table, r.target)
}
