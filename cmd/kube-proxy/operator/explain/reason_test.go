package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// passFar passes Services whose only endpoint is on another node: external and
// internal have that traffic policy Local. It also passes one without
// endpoints.
func passFar(s cluster.Sink) {
	s.SetNode(tabletest.Node())
	add := func(name, last string, change func(*cluster.Service)) {
		svc := tabletest.Service(name, "10.96.1."+last, change)
		svc.ExternalIPs = tabletest.Addrs("192.0.2." + last)
		svc.Ports[0].NodePort = 30000
		s.SetService(svc)
		far := tabletest.Endpoint("10.244.2." + last)
		far.Node = "node2"
		tabletest.SetEndpoint(s, svc.Name, far)
	}
	add("external", "1", func(svc *cluster.Service) { svc.ExternalPolicy = cluster.PolicyLocal })
	add("internal", "2", func(svc *cluster.Service) { svc.InternalPolicy = cluster.PolicyLocal })
	s.SetService(tabletest.Service("empty", "10.96.1.3", func(svc *cluster.Service) { svc.Ports[0].NodePort = 30001 }))
}

// The reasons of refusals follow from the rule or row that ends the walk.
func TestReasons(t *testing.T) {
	tabletest.NewNode(t)
	passTo(t, newTables(t, tabletest.Rules()), func(s cluster.Sink) {
		tabletest.PassSample(s)
		passFar(s)
	})
	tests := []struct {
		query  string
		action explain.Action
		reason ruleset.Reason
	}{
		{"10.96.0.50:80 tcp from 10.244.1.7", explain.Reject, ruleset.NoEndpoints},
		{"172.30.0.11:30001 tcp from 203.0.113.1", explain.Reject, ruleset.NoEndpoints},
		{"192.0.2.1:80 tcp from 203.0.113.1", explain.Drop, ruleset.NoLocalEndpoints},
		{"172.30.0.11:30000 tcp from 203.0.113.1", explain.Drop, ruleset.NoLocalEndpoints},
		{"192.0.2.1:80 tcp from 10.244.1.7", explain.ToEndpoint, ""},
		{"192.0.2.1:80 tcp from 172.30.0.11", explain.ToEndpoint, ruleset.FromNode},
		{"10.96.1.2:80 tcp from 10.244.1.7", explain.Drop, ruleset.NoLocalEndpoints},
		{"192.0.2.2:80 tcp from 10.244.1.7", explain.ToEndpoint, ruleset.ExternalPolicy},
		{"10.96.0.10:80 sctp from 10.244.1.7", explain.Reject, ruleset.UnknownPort},
		{"10.96.0.99:80 tcp from 10.244.1.7", explain.Drop, ruleset.UnallocatedAddress},
		{"192.0.2.10:80 tcp from 198.51.101.1", explain.Drop, ruleset.SourceRange},
		{"10.244.2.5:8080 tcp from 10.244.1.7", explain.Pass, ruleset.NoService},
		{"172.30.0.11:22 tcp from 203.0.113.1", explain.Pass, ruleset.NoService},
	}
	for _, test := range tests {
		r := ask(t, test.query)
		if o := r.Outcomes[0]; len(r.Outcomes) != 1 || o.Action != test.action || o.Reason.Code != test.reason {
			t.Errorf("%s: got %+v, want %s %s", test.query, r.Outcomes, test.action, test.reason)
		}
	}
}

// With NodePorts on localhost, UDP NodePorts are rejected there.
func TestLocalhost(t *testing.T) {
	tabletest.NewNode(t)
	rules := tabletest.Rules()
	rules.LocalhostNodePorts = true
	rules.NodePortAddresses.CIDRs = tabletest.Prefixes("127.0.0.0/8", "::1/128")
	passTo(t, newTables(t, rules), func(s cluster.Sink) {
		s.SetNode(tabletest.Node())
		s.SetService(tabletest.Service("dns", "10.96.0.10", func(svc *cluster.Service) {
			svc.Ports[0].Protocol, svc.Ports[0].NodePort = cluster.UDP, 30053
		}))
	})
	for query, want := range map[string]explain.Action{
		"127.0.0.1:30053 udp from 127.0.0.1": explain.Reject,
		"127.0.0.1:30053 tcp from 127.0.0.1": explain.Pass,
	} {
		r := ask(t, query)
		if o := r.Outcomes[0]; o.Action != want || o.Reason.Code != ruleset.Localhost {
			t.Errorf("%s: got %+v, want %s", query, o, want)
		}
	}
}

// With masqueradeAll the reason is the configuration.
func TestMasqueradeAll(t *testing.T) {
	tabletest.NewNode(t)
	rules := tabletest.Rules()
	rules.MasqueradeAll = true
	passTo(t, newTables(t, rules), tabletest.PassSample)
	o := ask(t, "10.96.0.10:80 tcp from 10.244.1.7").Outcomes[0]
	if !o.Masqueraded || o.Reason.Code != ruleset.MasqueradeAll {
		t.Errorf("got %+v, want masqueraded as configured", o)
	}
}

// A client that session affinity knows has one endpoint, until its row expires.
func TestKnownClient(t *testing.T) {
	tabletest.NewNode(t)
	passTo(t, newTables(t, tabletest.Rules()), tabletest.PassSample)
	const query = "10.96.0.40:80 tcp from 10.244.1.7"
	if r := ask(t, query); len(r.Outcomes) != 2 || r.Outcomes[0].Affinity != "new" {
		t.Errorf("new client: got %+v", r.Outcomes)
	}
	tabletest.LoadNFT(t, "add element ip kube-proxy sticky-clients-36 { 10.244.1.7 . 0:1001 timeout 400ms }")
	r := ask(t, query)
	if o := r.Outcomes[0]; len(r.Outcomes) != 1 || o.Endpoint.String() != "10.244.2.8:8080" || o.Affinity != "known" {
		t.Errorf("known client: got %+v", r.Outcomes)
	}
	for deadline := time.Now().Add(10 * time.Second); len(ask(t, query).Outcomes) != 2; {
		if time.Now().After(deadline) {
			t.Fatal("expired client: got one endpoint, want both")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A missing row and rules of other programs are part of the answer.
func TestForeignRules(t *testing.T) {
	tabletest.NewNode(t)
	passTo(t, newTables(t, tabletest.Rules()), tabletest.PassSample)
	const query = "10.96.0.10:80 tcp from 10.244.1.7"
	tabletest.LoadNFT(t, "delete element ip kube-proxy service-targets { 10.96.0.10 . tcp . 80 . 0:2 }")
	r := ask(t, query)
	if len(r.Outcomes) != 3 || r.Outcomes[1].Action != explain.Reject || r.Outcomes[1].Reason.Code != ruleset.Damaged ||
		r.Outcomes[1].Probability.RatString() != "1/3" {
		t.Errorf("missing row: got %+v, want a third of the packets to be rejected", r.Outcomes)
	}
	tabletest.LoadNFT(t, `insert rule ip kube-proxy services tcp dport 81 counter accept`)
	if o := ask(t, "10.96.0.10:81 tcp from 10.244.1.7").Outcomes[0]; o.Reason.Code != ruleset.Unexplained {
		t.Errorf("rule of another program: got %+v", o)
	}
	tabletest.LoadNFT(t, `insert rule ip kube-proxy services ip ttl 1 drop`)
	q := parseQuery(t, query)
	k, err := explain.OpenKernel(nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	const want = "chain services: rule 1: "
	if _, err := k.Explain(q); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("unknown expression: got error %v, want %s", err, want)
	}
	tabletest.LoadNFT(t, `insert rule ip kube-proxy services limit rate 1/second drop`)
	if _, err := k.Explain(q); err == nil || !strings.Contains(err.Error(), `"limit rate 1/second" is unknown`) {
		t.Errorf("unknown expression: got error %v", err)
	}
}
