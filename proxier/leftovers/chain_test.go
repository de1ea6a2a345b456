package leftovers

import (
	"strings"
	"testing"
)

func TestLeftoverNames(t *testing.T) {
	chain := isLeftoverChain
	jump := func(table, text string) bool {
		from, to, _ := strings.Cut(text, "->")
		return isLeftoverJump(table, rule{chain: from, target: to})
	}
	set := func(_, name string) bool { return isLeftoverSet(name) }
	for _, c := range []struct {
		table    string
		leftover func(table, name string) bool
		names    string
		want     bool
	}{
		{"nat", chain, "KUBE-SERVICES KUBE-MARK-MASQ KUBE-LOAD-BALANCER KUBE-SVC-NPX46M4PTMTKRN6Y " +
			"KUBE-SVL-NPX46M4PTMTKRN6Y KUBE-FW-NPX46M4PTMTKRN6Y KUBE-EXT-NPX46M4PTMTKRN6Y " +
			"KUBE-SEP-NPX46M4PTMTKRN6Y", true},
		{"filter", chain, "KUBE-SERVICES KUBE-IPVS-OUT-FILTER", true},
		{"mangle", chain, "KUBE-PROXY-CANARY", true},
		{"mangle", chain, "KUBE-SERVICES", false},
		{"nat", chain, "KUBE-SVC-NPX46M4PTMTKRN6 KUBE-SVC-NPX46M4PTMTKRN6Y1 KUBE-SVC-npx46m4ptmtkrn6y " +
			"KUBE-SVC-NPX46M4PTMTKRN61 PREROUTING", false},
		{"filter", chain, "KUBE-SVC-NPX46M4PTMTKRN6Y KUBE-POSTROUTING", false},
		// of the kubelet
		{"filter", chain, "KUBE-FIREWALL", false},
		{"nat", chain, "KUBE-MARK-DROP KUBE-KUBELET-CANARY", false},
		{"mangle", chain, "KUBE-IPTABLES-HINT", false},
		// of kube-router
		{"filter", chain, "KUBE-ROUTER-INPUT KUBE-POD-FW-TJQMRVG6LWFNHIXZ", false},

		{"nat", jump, "PREROUTING->KUBE-SERVICES", true},
		{"filter", jump, "INPUT->KUBE-IPVS-FILTER", true},
		{"nat", jump, "DOCKER->KUBE-SERVICES", false},
		{"nat", jump, "POSTROUTING->KUBE-MARK-MASQ", false}, // kube-proxy has no such rule
		{"nat", jump, "PREROUTING->KUBE-FORWARD", false},    // in filter only
		{"filter", jump, "INPUT->KUBE-FIREWALL", false},

		// The last two of the first line are truncated.
		{"", set, "KUBE-CLUSTER-IP KUBE-6-CLUSTER-IP KUBE-IPVS-IPS " +
			"KUBE-6-LOAD-BALANCER-SOURCE-CID KUBE-6-NODE-PORT-LOCAL-SCTP-HAS", true},
		{"", set, "KUBE-SRC-ABC KUBE-6-", false}, // KUBE-SRC-ABC is of kube-router
	} {
		for _, name := range strings.Fields(c.names) {
			if got := c.leftover(c.table, name); got != c.want {
				t.Errorf("%s %s: got leftover %v, want %v", c.table, name, got, c.want)
			}
		}
	}
}
