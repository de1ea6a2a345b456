package explain_test

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/script"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// A result shows what the proxy knows.
func TestAdd(t *testing.T) {
	tabletest.NewNode(t)
	n := newNode(t, tabletest.Rules())
	tabletest.LoadNFT(t, "delete element ip kube-proxy service-classes { 10.96.0.10 . tcp . 80 }")
	desired := explain.Desired{
		ServicePort: "default/web:http", Frontend: "ClusterIP",
		Pending: "the last sync failed: no buffer space available",
		Notes:   []string{"default/web:http is left out until it can be served: because"},
	}
	for n := range byte(11) {
		desired.Unused = append(desired.Unused, explain.Unused{
			EndpointPlace: ruleset.EndpointPlace{
				Addr: netip.AddrFrom4([4]byte{10, 244, 9, n}), Port: uint16(n) * 4040, Node: "node9",
			},
			Text: "not ready",
		})
	}
	r, err := n.ask("10.96.0.10:80 tcp from 10.244.1.7", &desired)
	must.NoError(t, err)
	var got bytes.Buffer
	r.Print(&got, false)
	script.Golden(t, "testdata/add.txt", got.String())
}

// A connection to a NodePort on localhost goes to the forwarder.
func TestForwarder(t *testing.T) {
	tabletest.NewNode(t)
	n := newNode(t, tabletest.Rules())
	endpoints := []netip.AddrPort{netip.MustParseAddrPort("10.244.1.7:8080"),
		netip.MustParseAddrPort("10.244.2.7:8080")}
	var got strings.Builder
	for _, f := range []*explain.Forwarder{
		{Endpoints: endpoints}, {Endpoints: endpoints, Affinity: "new"}, {Endpoints: endpoints[:1], Affinity: "known"},
		{Closed: ruleset.Reason{Code: ruleset.NoEndpoints, Text: "no endpoints"}},
		{Closed: ruleset.Reason{Code: ruleset.Localhost, Text: "address already in use"}},
	} {
		r, err := n.ask("127.0.0.1:30090 tcp from 127.0.0.1", &explain.Desired{Forwarder: f})
		must.NoError(t, err)
		got.WriteString(r.Answer + "\n")
		for _, o := range r.Outcomes {
			got.WriteString("  " + string(o.Action) + " " + o.Probability.RatString() + " " + o.RejectWith + "\n")
		}
	}
	script.Golden(t, "testdata/forwarder.txt", got.String())
	if r, err := n.ask("10.96.0.10:80 tcp from 10.244.1.7", &explain.Desired{}); err != nil || len(r.Outcomes) != 3 {
		t.Errorf("without a forwarder: got %+v", r.Outcomes)
	}
}

// A Service whose rows another program deleted is not unknown.
func TestAddDamaged(t *testing.T) {
	tabletest.NewNode(t)
	n := newNode(t, tabletest.Rules())
	tabletest.LoadNFT(t, "flush map ip kube-proxy service-classes")
	for _, c := range []struct {
		desired explain.Desired
		want    ruleset.Code
	}{
		{explain.Desired{ServicePort: "default/web:http"}, ruleset.Damaged},
		{explain.Desired{ServicePort: "default/web:http", Pending: "the first sync"}, ruleset.NoService},
		{explain.Desired{}, ruleset.NoService},
	} {
		r, err := n.ask("192.0.2.10:80 tcp from 10.244.1.7", &c.desired)
		must.NoError(t, err)
		if got := r.Outcomes[0].Reason.Code; got != c.want {
			t.Errorf("%+v: got reason %s, want %s", c.desired, got, c.want)
		}
	}
}
