package node

import (
	"regexp"
	"strings"
)

// policyNames match the names of tables and chains in which network plugins
// have the rules of NetworkPolicies: Calico, kube-router, Weave Net, kindnet,
// kube-network-policies, Antrea and Romana.
var policyNames = regexp.MustCompile(
	`(?i)^(cali|felix)-|nwplcy|kube-pod-fw|netpol|network-?polic|weave-npc|antrea|romana`)

var (
	comment = regexp.MustCompile(`comment "([^"]*)"`)
	policy  = regexp.MustCompile(`(?i)\bpolic(y|ies)\b|network-?polic`)
	// kubeRouterName is "selected by policy name deny namespace shop".
	kubeRouterName = regexp.MustCompile(`(?i)policy name:? *([\w.-]+),? namespace:? *([\w.-]+)`)
	podName        = regexp.MustCompile(`(?i)pod name:? *([\w.-]+),? namespace:? *([\w.-]+)`)
	fullName       = regexp.MustCompile(`[a-z][\w.-]*/[a-z][\w.-]*`)
)

// PolicyOf reports whether a rule of another program looks like one of a
// NetworkPolicy, by the names of its table and chain and by its comment. It
// returns a description, with the name of the policy if the comment has it.
func PolicyOf(table, chain, rule string) (description string, ok bool) {
	text := ""
	if found := comment.FindStringSubmatch(rule); found != nil {
		text = found[1]
	}
	table = table[strings.LastIndexByte(table, ' ')+1:]
	if !policyNames.MatchString(table) && !policyNames.MatchString(chain) && !policy.MatchString(text) {
		return "", false
	}
	if found := kubeRouterName.FindStringSubmatch(text); found != nil {
		return "the NetworkPolicy " + found[2] + "/" + found[1], true
	}
	if found := podName.FindStringSubmatch(text); found != nil {
		return "the NetworkPolicies of pod " + found[2] + "/" + found[1], true
	}
	if found := fullName.FindString(text); found != "" {
		return "the NetworkPolicy " + found, true
	}
	return "a NetworkPolicy", true
}
