package node_test

import (
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
)

// Rules of network plugins, as they write them, and rules of others.
func TestPolicyOf(t *testing.T) {
	for _, tt := range []struct{ table, chain, rule, want string }{
		{"ip filter", "cali-tw-cali1a2b", `comment "cali:abc" comment "Drop if no policies passed packet" drop`,
			"a NetworkPolicy"},
		{"ip filter", "cali-pi-_x", `comment "Policy shop/knp.default.deny ingress" drop`,
			"the NetworkPolicy shop/knp.default.deny"},
		{"legacy table ip filter", "KUBE-POD-FW-X", `comment "rule to REJECT traffic destined for POD name:web-1 ` +
			`namespace: shop" reject`, "the NetworkPolicies of pod shop/web-1"},
		{"ip filter", "KUBE-NWPLCY-X", `comment "rule to ACCEPT traffic selected by policy name deny namespace shop"`,
			"the NetworkPolicy shop/deny"},
		{"inet kindnet-network-policies", "postrouting", "queue to 100", "a NetworkPolicy"},
		{"inet site", "forward", `drop comment "NetworkPolicy shop/deny"`, "the NetworkPolicy shop/deny"},
		{"inet site", "forward", `drop comment "policy of shop/deny"`, "the NetworkPolicy shop/deny"},
		{"inet site", "forward", `drop comment "no web traffic to pods"`, ""},
		{"inet policyd", "forward", "policy drop", ""},
		{"inet firewalld", "filter_FORWARD", "reject with icmpx admin-prohibited", ""},
	} {
		if got, ok := node.PolicyOf(tt.table, tt.chain, tt.rule); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%+v: got %q, %v", tt, got, ok)
		}
	}
}
