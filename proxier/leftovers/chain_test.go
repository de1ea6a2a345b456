package leftovers

import "testing"

func TestLeftoverChain(t *testing.T) {
	const nat, filter, mangle = "nat", "filter", "mangle"
	for _, c := range []struct {
		table, chain string
		want         bool
	}{
		{nat, "KUBE-SERVICES", true},
		{nat, "KUBE-MARK-MASQ", true},
		{nat, "KUBE-LOAD-BALANCER", true},
		{nat, "KUBE-SVC-NPX46M4PTMTKRN6Y", true},
		{nat, "KUBE-SVL-NPX46M4PTMTKRN6Y", true},
		{nat, "KUBE-FW-NPX46M4PTMTKRN6Y", true},
		{nat, "KUBE-EXT-NPX46M4PTMTKRN6Y", true},
		{nat, "KUBE-SEP-NPX46M4PTMTKRN6Y", true},
		{filter, "KUBE-SERVICES", true},
		{filter, "KUBE-IPVS-OUT-FILTER", true},
		{mangle, "KUBE-PROXY-CANARY", true},

		{filter, "KUBE-SVC-NPX46M4PTMTKRN6Y", false},
		{filter, "KUBE-POSTROUTING", false},
		{mangle, "KUBE-SERVICES", false},
		{nat, "KUBE-SVC-NPX46M4PTMTKRN6", false},
		{nat, "KUBE-SVC-NPX46M4PTMTKRN6Y1", false},
		{nat, "KUBE-SVC-npx46m4ptmtkrn6y", false},
		{nat, "KUBE-SVC-NPX46M4PTMTKRN61", false},
		// of the kubelet
		{filter, "KUBE-FIREWALL", false},
		{nat, "KUBE-MARK-DROP", false},
		{nat, "KUBE-KUBELET-CANARY", false},
		{mangle, "KUBE-IPTABLES-HINT", false},
		// of kube-router
		{filter, "KUBE-ROUTER-INPUT", false},
		{filter, "KUBE-POD-FW-TJQMRVG6LWFNHIXZ", false},
		{nat, "PREROUTING", false},
	} {
		if got := isLeftoverChain(c.table, c.chain); got != c.want {
			t.Errorf("isLeftoverChain(%q, %q): got %v, want %v", c.table, c.chain, got, c.want)
		}
	}
}

func TestLeftoverJump(t *testing.T) {
	for _, c := range []struct {
		table string
		rule  rule
		want  bool
	}{
		{"nat", rule{chain: "PREROUTING", target: "KUBE-SERVICES"}, true},
		{"filter", rule{chain: "INPUT", target: "KUBE-IPVS-FILTER"}, true},
		{"nat", rule{chain: "DOCKER", target: "KUBE-SERVICES"}, false},
		{"nat", rule{chain: "POSTROUTING", target: "KUBE-MARK-MASQ"}, false}, // kube-proxy has no such rule
		{"nat", rule{chain: "PREROUTING", target: "KUBE-FORWARD"}, false},    // in filter only
		{"filter", rule{chain: "INPUT", target: "KUBE-FIREWALL"}, false},
	} {
		if got := isLeftoverJump(c.table, c.rule); got != c.want {
			t.Errorf("isLeftoverJump(%q, %+v): got %v, want %v", c.table, c.rule, got, c.want)
		}
	}
}

func TestLeftoverSet(t *testing.T) {
	for name, want := range map[string]bool{
		"KUBE-CLUSTER-IP": true, "KUBE-6-CLUSTER-IP": true,
		"KUBE-6-LOAD-BALANCER-SOURCE-CID": true, // truncated
		"KUBE-6-NODE-PORT-LOCAL-SCTP-HAS": true,
		"KUBE-SRC-ABC":                    false, // of kube-router
		"KUBE-6-":                         false,
		"KUBE-IPVS-IPS":                   true,
	} {
		if got := isLeftoverSet(name); got != want {
			t.Errorf("isLeftoverSet(%q): got %v, want %v", name, got, want)
		}
	}
}
