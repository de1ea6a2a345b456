package ruleset

import "regexp"

// codeDoc is what docs/troubleshooting.md has about a code, in Markdown.
type codeDoc struct {
	code          Code
	cause, remedy string
}

// codeDocs are the codes, in the order of the tables there: those of ANSWER, of
// UNUSED, of ROUTE, and of the other states of services. TestCodes writes the
// tables. The codes of ROUTE have no remedy here: package route has one for
// each packet.
var codeDocs = [4][]codeDoc{
	{ // ANSWER
		{
			NoEndpoints, "no endpoint is ready, for several reasons",
			"see the reason of each endpoint (`services SERVICE`)",
		},
		{NoPods, "no pod matches the selector", "correct selector or labels, or start pods"},
		{
			NoSlices, "no EndpointSlice has the label of the Service (see the log of kube-controller-manager), or " +
				"the Service has no selector and no endpoint",
			"correct the label of the slice, add one, or add a selector",
		},
		{
			OtherFamily, "all endpoints have the other address family",
			"give pods both families, or the Service one (`ipFamilies`)",
		},
		{
			MissingPort, "no EndpointSlice has the port; without a selector, a slice names its port as the Service " +
				"does",
			"correct the name",
		},
		{
			AllTerminating, "all endpoints are terminating, and none serves",
			"start pods; a preStop hook keeps terminating pods serving",
		},
		{NoneReady, "no endpoint is ready", "repair the pods or the readiness probe"},
		{
			HintedElsewhere, "hints keep this node from endpoints with a weight",
			"give an endpoint in this zone a weight, or remove the hints (`trafficDistribution`)",
		},
		{NoWeight, "all endpoints have [weight](balance.md#weights) 0", "give one a weight"},
		{
			NoLocalEndpoints, "policy Local, and no ready endpoint on this node",
			"connect to another node, or use policy Cluster",
		},
		{UnknownPort, "the Service has no such port; UDP and TCP differ", "use one of its ports"},
		{
			UnallocatedAddress, "no Service has this address of a service CIDR; the client may have cached it",
			"use the address that the Service has now",
		},
		{
			SourceRange, "`loadBalancerSourceRanges` exclude the client, whose address a NAT can change",
			"add a range of the client to `loadBalancerSourceRanges`",
		},
		{
			NoService, "no Service has the address and port; NodePorts depend on `nodePortAddresses`",
			"use an address of the Service",
		},
		{
			HealthCheck, "a `healthCheckNodePort`: the proxy answers 200, or 503 and why " +
				"([firewalls](checks.md#health-checks))",
			"none",
		},
		{
			Localhost, "the proxy itself serves [NodePorts on " +
				"localhost](../deploy/configuration.md#nodeports-on-localhost), or does not",
			"use an address of the node",
		},
		{
			Damaged, "[rows](checks.md#rows) of the Service are missing",
			"wait for the repair, and [stop the other program](alerts.md#nftproxytablechangedbyothers)",
		},
		{Unexplained, "a foreign rule in nftproxy's table decides ([`doctor`](checks.md#rows))", "remove the rule"},
		{
			OtherTable, "a [rule of another table](checks.md#filters) drops, rejects, translates or does not track " +
				"the packet",
			"accept translated connections before it; exclude Services from a rule that translates or does not " +
				"track",
		},
		{
			NetworkPolicy, "the rule looks like a NetworkPolicy's",
			"allow the connection in a NetworkPolicy, if it is wanted",
		},
		{
			LegacyRules, "lost; rules of iptables-legacy [report nothing](checks.md#filters)",
			"accept translated connections first",
		},
		{
			IPsec, "lost after routing; IPsec policies exist (`ip xfrm policy`)",
			"let the policies cover the endpoints, or exclude them",
		},
		{ConntrackFull, "connection tracking is full", "[raise the limit](alerts.md#nftproxyconntrackfull)"},
		{
			NotReported, "lost, and nothing here explains it (eBPF, tc, the MTU); watch with `tcpdump`",
			"find what drops the packets, and remove it",
		},
		{
			Unanswered, "the client repeats its packet: see ROUTE, and NetworkPolicies on the endpoint's node",
			"repair the endpoint or its network",
		},
		{
			Untranslated, "the connection is older than the Service (`conntrack -L -d ADDRESS`)",
			"wait for the end of the connection, or delete its entry",
		},
		{
			OutsideCluster, "masqueraded: the client is [not recognized as a pod](checks.md#local-detection)",
			"if it is a pod, correct `clusterCIDR` or `detectLocalMode`",
		},
		{MasqueradeAll, "masqueraded: `masqueradeAll` is set", "remove it, if endpoints need the client's address"},
		{
			ExternalPolicy, "masqueraded: externalTrafficPolicy Cluster",
			"policy Local, if endpoints need the client's address",
		},
		{FromNode, "masqueraded: the client is this node", "none"},
		{Hairpin, "masqueraded: the client is its own endpoint", "none"},
	},
	{ // UNUSED
		{UnusedServiceCIDR, "its address is in a service CIDR", "use addresses of pods"},
		{UnusedNoPort, "it does not have the port", "correct the name"},
		{UnusedDuplicate, "another endpoint has its address and port", "none"},
		{UnusedNotReady, "it is not ready", "repair the pod or the readiness probe"},
		{UnusedTerminating, "the pod is about to end", "none, while others are ready"},
		{UnusedOtherNode, "policy Local, and it is on another node", "policy Cluster, if all nodes should serve"},
		{
			UnusedNodeHints, "hints select others for this node (`services -o wide`)",
			"none; `trafficDistribution` sets hints",
		},
		{UnusedZoneHints, "hints select others for this zone", "none; `trafficDistribution` sets hints"},
		{UnusedWeight, "its [weight](balance.md#weights) is 0", "give it a weight"},
		{
			UnusedEjected, "it [answers nothing](dead-endpoints.md), and others do, or it fails [health " +
				"checks](install/linux.md#health-checks)",
			"repair the pod or node: it returns when it answers",
		},
		{
			UnusedBudget, "the Service or namespace exceeds a [budget](budgets.md)",
			"raise it, or use fewer endpoints and addresses",
		},
	},
	{ // ROUTE
		{NoRoute, "this node has no route to the endpoint, or to the client for the answer", ""},
		{RouteForbids, "the route has the type `blackhole`, `prohibit` or `unreachable`", ""},
		{ForwardingOff, "a [sysctl](checks.md#ip-forward) keeps this node from forwarding packets", ""},
		{
			ReversePath, "[`rp_filter`](checks.md#rp-filter) drops the packet: the route to its source is missing, " +
				"or leads through another interface",
			"",
		},
		{MartianSource, "the packet arrives with an address of this node as its source", ""},
		{RouteRefused, "the kernel does not route the packet for another reason, such as a rule (`ip rule`)", ""},
		{NoCarrier, "the interface to the endpoint has no carrier", ""},
		{SilentNeighbour, "the endpoint or the next hop does not answer ARP or neighbour discovery", ""},
	},
	{ // STATE of services
		{
			Conflict, "[another Service](#another-service-has-the-address) has the address and port",
			"delete one of the claims",
		},
		{Waiting, "a change failed, and the next sync tries it again", "wait; if it stays, that of the error"},
		{
			Refused, "the kernel [refused a change](alerts.md#nftproxyserviceportsrefused) of the Service",
			"that of the error; a change of the Service is tried at once",
		},
	},
}

// remedies are the remedies without links. A code whose remedy is none has
// none.
var remedies = func() map[Code]string {
	all := make(map[Code]string)
	link := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	for _, table := range codeDocs {
		for _, c := range table {
			if c.remedy != "none" {
				all[c.code] = link.ReplaceAllString(c.remedy, "$1")
			}
		}
	}
	return all
}()

// Reason is a reason for people.
type Reason struct {
	Code Code   `json:"code"`
	Text string `json:"text,omitempty"` // a sentence without a period
	// Remedy is what to do, "" if nothing has to be done.
	Remedy string `json:"remedy,omitempty"`
}

// Reason returns the reason with its text, which mentions facts.
func (c Code) Reason(facts Facts) Reason { return c.With(c.Text(facts)) }

// With returns the reason with a text.
func (c Code) With(text string) Reason { return Reason{c, text, remedies[c]} }

// CodeText returns the code as it follows a text that is printed, "" for a zero
// Reason. docs/troubleshooting.md lists the codes.
func (r Reason) CodeText() string {
	if r.Code == "" {
		return ""
	}
	return " [" + string(r.Code) + "]"
}

// Refine makes the reason more precise, if a lack of endpoints is it.
func (r *Reason) Refine(lack *Lack) {
	switch {
	case lack.Of == "" || r.Code != lack.Of:
	case lack.Code == lack.Of:
		r.Text += ": " + lack.Short
	default:
		*r = lack.Reason
	}
}
