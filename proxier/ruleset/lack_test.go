package ruleset

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Each case is the endpoints of a Service, on node1 or node2. The answer names
// one reason for all of them.
func TestLackOf(t *testing.T) {
	http := []cluster.EndpointPort{{Name: "http", Protocol: cluster.TCP, Port: 8080}}
	other := []cluster.EndpointPort{
		{Name: "metrics", Protocol: cluster.TCP, Port: 9090}, {Name: "web", Protocol: cluster.TCP, Port: 8080},
	}
	ready := cluster.Endpoint{Ports: http, Node: "node2", Ready: true, Serving: true}
	with := func(change func(e *cluster.Endpoint)) *cluster.Endpoint {
		e := ready
		change(&e)
		return &e
	}
	stopped := with(func(e *cluster.Endpoint) { e.Ready, e.Serving, e.Terminating = false, false, true })
	starting := with(func(e *cluster.Endpoint) { e.Ready, e.Serving = false, false })
	misnamed := with(func(e *cluster.Endpoint) { e.Ports = other })
	portless := with(func(e *cluster.Endpoint) { e.Ports = nil })
	weightless := with(func(e *cluster.Endpoint) { e.Weight = cluster.WeightOf(0) })
	zoned := func(e *cluster.Endpoint, zone string) *cluster.Endpoint {
		hinted := *e
		hinted.Hints = &cluster.Hints{Zones: []string{zone}}
		return &hinted
	}
	here := with(func(e *cluster.Endpoint) { e.Node, e.Ready, e.Serving = "node1", false, false })
	for name, tt := range map[string]struct {
		selector, target string
		policy           cluster.Policy
		endpoints        []*cluster.Endpoint
		reason           Reason
		text, short      string
	}{
		"a selector without pods": {
			selector: "app=web", reason: NoPods,
			text:  "no pod with an IPv4 address matches the selector app=web of shop/web",
			short: "no pod with an IPv4 address matches the selector app=web",
		},
		"no selector": {
			reason: NoSlices, text: "shop/web has no selector, and no EndpointSlice has an IPv4 endpoint for it",
			short: "no selector, and no IPv4 endpoint in an EndpointSlice",
		},
		"a name of targetPort that no pod has": {
			target: "htpp", endpoints: []*cluster.Endpoint{portless, portless}, reason: MissingPort,
			text: `shop/web:http has no endpoint with its port: no EndpointSlice has a port named "http" (tcp): no ` +
				`pod has a port named "htpp" (targetPort); they have no ports`,
			short: `no EndpointSlice has a port named "http" (tcp): no pod has a port named "htpp" (targetPort)`,
		},
		"another name in the slices": {
			endpoints: []*cluster.Endpoint{misnamed, misnamed}, reason: MissingPort,
			text: `shop/web:http has no endpoint with its port: no EndpointSlice has a port named "http" (tcp); they ` +
				`have only metrics 9090/tcp, web 8080/tcp`,
			short: `no EndpointSlice has a port named "http" (tcp)`,
		},
		"terminating": {
			endpoints: []*cluster.Endpoint{stopped, stopped}, reason: AllTerminating,
			text:  "all 2 endpoints of shop/web:http are terminating, and none serves",
			short: "all endpoints are terminating",
		},
		"not ready": {
			endpoints: []*cluster.Endpoint{starting}, reason: NoneReady,
			text: "none of 1 endpoints of shop/web:http is ready", short: "no endpoint is ready",
		},
		"several reasons": {
			endpoints: []*cluster.Endpoint{starting, stopped, misnamed}, reason: NoEndpoints,
			short: "1 of 3: not ready; 1 of 3: terminating; 1 of 3: the endpoint does not have the port",
		},
		"weight 0": {
			endpoints: []*cluster.Endpoint{weightless}, reason: NoWeight, short: "1 of 1: the weight is 0",
		},
		"weight 0 in this zone": {
			endpoints: []*cluster.Endpoint{zoned(weightless, "a"), zoned(&ready, "b")}, reason: HintedElsewhere,
			text:  "shop/web:http: hints keep this node from 1 endpoints, and the others have weight 0",
			short: "hints keep this node from 1 endpoints, and the others have weight 0",
		},
		"other nodes": {
			policy: cluster.PolicyLocal, endpoints: []*cluster.Endpoint{&ready, &ready}, reason: NoLocalEndpoints,
			short: "all 2 are on other nodes",
		},
		"not ready on this node": {
			policy: cluster.PolicyLocal, endpoints: []*cluster.Endpoint{&ready, here}, reason: NoLocalEndpoints,
			short: "1 of 1: not ready",
		},
	} {
		rules, err := New(Config{}, nft.IPv4)
		if err != nil {
			t.Fatal(err)
		}
		in := &PlanInput{
			Node: &cluster.Node{Name: "node1", Zone: "a"},
			Port: cluster.ServicePort{Name: "http", Protocol: cluster.TCP, Port: 80, TargetName: tt.target},
			Service: &cluster.Service{
				Name: cluster.ServiceName{Namespace: "shop", Name: "web"}, Selector: tt.selector,
				Balance: cluster.BalanceSourceHash, InternalPolicy: tt.policy, Families: []nft.Family{nft.IPv4},
				ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
			},
		}
		in.Frontends = FrontendsOf(nft.IPv4, in.Service, in.Port)
		addr := netip.MustParseAddr("10.244.2.1")
		for _, e := range tt.endpoints {
			placed := *e
			placed.Addr, addr = addr, addr.Next()
			in.Endpoints = append(in.Endpoints, &placed)
		}
		plan, err := rules.MakePlan(in)
		if err != nil {
			t.Fatal(err)
		}
		of := plan.Reach(tt.policy).Reason
		got := LackOf(nft.IPv4, in, EndpointUses(nft.IPv4, in), tt.policy, of)
		if want := (Lack{of, tt.reason, tt.text, tt.short}); got != want {
			t.Errorf("%s: got\n%+v\nwant\n%+v", name, got, want)
		}
	}
}
