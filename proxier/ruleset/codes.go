package ruleset

import "regexp"

// codeDoc is what docs/troubleshooting.md has about a code, in Markdown.
type codeDoc struct {
	code                   Code
	symptom, check, remedy string
}

// codeDocs are all codes, in the order of the tables there: those of ANSWER, of
// ROUTE, of UNUSED, and of the other states of services. TestCodes writes the
// tables.
var codeDocs = [4][]codeDoc{
	{ // ANSWER
		{
			NoEndpoints, "no ready endpoint, for several reasons",
			"`services SERVICE`",
			"that of each reason of an endpoint",
		},
		{
			NoPods, "no pod matches the selector",
			"`kubectl get pods -l SELECTOR`",
			"correct selector or labels, or start pods",
		},
		{
			NoSlices, "no EndpointSlice belongs to the Service, or it has no selector and no endpoint",
			"`kubectl get endpointslices -l kubernetes.io/service-name=NAME`; the log of " +
				"kube-controller-manager",
			"correct the label of the slice, add one, or add a selector",
		},
		{
			OtherFamily, "all endpoints have the other address family",
			"`kubectl get pods -o wide`",
			"give pods both families, or the Service one (`ipFamilies`)",
		},
		{
			MissingPort, "no EndpointSlice has the port",
			"`targetPort`, the ports of the containers; without a selector, a slice names its port as the " +
				"Service does",
			"correct the name",
		},
		{
			AllTerminating, "all endpoints are terminating, and none serves",
			"who deletes the pods?",
			"start pods; a preStop hook keeps terminating pods serving",
		},
		{
			NoneReady, "no endpoint is ready",
			"`kubectl describe pod`",
			"repair the pods or the readiness probe",
		},
		{
			HintedElsewhere, "hints keep this node from endpoints with a weight",
			"weights and zones in the EndpointSlices",
			"give an endpoint in this zone a weight, or remove the hints (`trafficDistribution`)",
		},
		{
			NoWeight, "all endpoints have weight 0",
			"[`nftproxy.io/weight`](balance.md)",
			"give one a weight",
		},
		{
			NoLocalEndpoints, "policy Local, and no ready endpoint on this node",
			"`services SERVICE`: NODE; load balancers use `healthCheckNodePort`",
			"connect to another node, or use policy Cluster",
		},
		{
			UnknownPort, "the Service has no such port; UDP and TCP differ",
			"`services SERVICE`",
			"use one of its ports",
		},
		{
			UnallocatedAddress, "no Service has this address of a service CIDR",
			"the client's DNS cache",
			"use the address that the Service has now",
		},
		{
			SourceRange, "`loadBalancerSourceRanges` exclude the client",
			"`trace`: the source, which a NAT can change; [`doctor`](checks.md#source-ranges): ranges of " +
				"the other family",
			"add a range of the client to `loadBalancerSourceRanges`",
		},
		{
			NoService, "no Service has the address and port",
			"`services`: [another Service](#another-service-has-the-address) can have it; " +
				"`nodePortAddresses`",
			"use an address of the Service",
		},
		{
			HealthCheck, "not translated: a `healthCheckNodePort`",
			"ANSWER: 200, or 503 and why; [firewalls](checks.md#health-checks)",
			"none",
		},
		{
			Localhost, "the proxy itself forwards NodePorts on localhost, or does not",
			"[the settings](../deploy/configuration.md#nodeports-on-localhost)",
			"use an address of the node",
		},
		{
			Damaged, "rows of the Service are missing",
			"[`doctor`](checks.md#rows): rows",
			"wait for the repair, and [stop the other program](alerts.md#nftproxytablechangedbyothers)",
		},
		{
			Unexplained, "a foreign rule in nftproxy's table decides",
			"[`doctor`](checks.md#rows): rows",
			"remove the rule",
		},
		{
			OtherTable, "a rule of another table drops, rejects, translates or does not track the packet",
			"[`doctor`](checks.md#filters)",
			"accept translated connections before it; exclude Services from a rule that translates or does not track",
		},
		{
			NetworkPolicy, "the rule looks like a NetworkPolicy's",
			"`kubectl describe networkpolicies`, for both pods",
			"allow the connection in a NetworkPolicy, if it is wanted",
		},
		{
			LegacyRules, "lost; the rules of iptables-legacy report no packets",
			"[`doctor`](checks.md#filters) evaluates them",
			"accept translated connections first",
		},
		{
			IPsec, "lost after routing; IPsec policies exist",
			"`ip xfrm policy`, `ip -s xfrm state`",
			"let the policies cover the endpoints, or exclude them",
		},
		{
			ConntrackFull, "connection tracking is full",
			"`status`, `top`",
			"[raise the limit](alerts.md#nftproxyconntrackfull)",
		},
		{
			NotReported, "lost, and nothing here explains it",
			"`tcpdump`; eBPF, tc, the MTU",
			"find what drops the packets, and remove it",
		},
		{
			Unanswered, "the client repeats its packet",
			"ROUTE; `tcpdump` and NetworkPolicies on the endpoint's node",
			"repair the endpoint or its network",
		},
		{
			Untranslated, "the connection is older than the Service",
			"`conntrack -L -d ADDRESS`",
			"wait for the end of the connection, or delete its entry",
		},
		{
			OutsideCluster, "masqueraded: the client is not recognized as a pod",
			"[`doctor`](checks.md#local-detection)",
			"if it is a pod, correct `clusterCIDR` or `detectLocalMode`",
		},
		{
			MasqueradeAll, "masqueraded: `masqueradeAll` is set",
			"the configuration",
			"remove it, if endpoints need the client's address",
		},
		{
			ExternalPolicy, "masqueraded: externalTrafficPolicy Cluster",
			"`services`: POLICY",
			"policy Local, if endpoints need the client's address",
		},
		{
			FromNode, "masqueraded: the client is this node",
			"the source",
			"none",
		},
		{
			Hairpin, "masqueraded: the client is its own endpoint",
			"the source",
			"none",
		},
	},
	{ // ROUTE, and packets that trace saw last before or after routing
		{
			NoRoute, "no route to the endpoint, or back to the client",
			"`ip route get ADDRESS`; the network plugin's pod",
			"repair the plugin, or add the route",
		},
		{
			RouteForbids, "the route is of type blackhole, prohibit or unreachable",
			"`ip route show table all type blackhole`; plugins add them for ranges whose pods are gone",
			"repair the plugin, or delete the route",
		},
		{
			ForwardingOff, "this node does not forward packets",
			"[`doctor`](checks.md#ip-forward)",
			"`sysctl -w net.ipv4.ip_forward=1`, and find what changes it",
		},
		{
			ReversePath, "rp_filter drops packets: the route to their source is by another interface",
			"`ip route get SOURCE`; [`doctor`](checks.md#rp-filter)",
			"make routes symmetric, or set rp_filter to 2 (loose)",
		},
		{
			MartianSource, "the source is an address of this node",
			"`ip addr`",
			"change the address that exists twice",
		},
		{
			RouteRefused, "the kernel does not route the packet for another reason",
			"`ip rule`; `ip route get ENDPOINT from SOURCE iif INTERFACE`",
			"correct the rules",
		},
		{
			NoCarrier, "the interface to the endpoint has no carrier",
			"`ip link show INTERFACE`",
			"repair the link, or delete the pod",
		},
		{
			SilentNeighbour, "the endpoint or next hop does not answer ARP or neighbour discovery",
			"`kubectl get nodes`, `kubectl get pods -o wide`",
			"restart the node or pod; the Service drops endpoints that are not ready",
		},
	},
	{ // UNUSED
		{
			UnusedServiceCIDR, "its address is in a service CIDR",
			"the EndpointSlice",
			"use addresses of pods",
		},
		{
			UnusedNoPort, "it does not have the port",
			"`targetPort`, the ports of the containers",
			"correct the name",
		},
		{
			UnusedDuplicate, "another endpoint has its address and port",
			"other EndpointSlices",
			"none",
		},
		{
			UnusedNotReady, "it is not ready",
			"`kubectl describe pod`",
			"repair the pod or the readiness probe",
		},
		{
			UnusedTerminating, "the pod is about to end",
			"`kubectl get pods`",
			"none, while others are ready",
		},
		{
			UnusedOtherNode, "policy Local, and it is on another node",
			"`services`: POLICY",
			"policy Cluster, if all nodes should serve",
		},
		{
			UnusedNodeHints, "hints select endpoints for this node",
			"`services -o wide`: HINTED NODES",
			"none; `trafficDistribution` sets hints",
		},
		{
			UnusedZoneHints, "hints select endpoints for this zone",
			"`services -o wide`: HINTED ZONES",
			"none; `trafficDistribution` sets hints",
		},
		{
			UnusedWeight, "its weight is 0",
			"[`nftproxy.io/weight`](balance.md)",
			"give it a weight",
		},
		{
			UnusedEjected, "it [answers nothing](dead-endpoints.md), and others do, or it fails [health " +
				"checks](install/linux.md#health-checks)",
			"`trace`; ROUTE",
			"repair the pod or node: it returns when it answers",
		},
		{
			UnusedBudget, "the Service or namespace exceeds a [budget](budgets.md)",
			"`services`",
			"raise it, or use fewer endpoints and addresses",
		},
	},
	{ // STATE of services
		{
			Conflict, "another Service has the address and port",
			"[the order of priority](#another-service-has-the-address)",
			"delete one of the claims",
		},
		{
			Waiting, "a change failed, and the next sync tries it again",
			"`status`: LAST WRITE",
			"wait; if it stays, that of the error",
		},
		{
			Refused, "the kernel refused a change of the Service",
			"[NftproxyServicePortsRefused](alerts.md#nftproxyserviceportsrefused)",
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
