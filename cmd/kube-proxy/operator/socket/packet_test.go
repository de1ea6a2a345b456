package socket

import (
	"context"
	"fmt"
	"math/big"
	"net/http"
	"net/netip"
	"reflect"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Explain answers with the query.
func (f *fakeProxy) Explain(_ context.Context, q explain.Query) (*explain.Desired, error) {
	if f.err != nil {
		return nil, f.err
	}
	return fakeDesired(q), nil
}

func fakeDesired(q explain.Query) *explain.Desired {
	third := big.NewRat(1, 3)
	return &explain.Desired{
		Result: &explain.Result{
			Destination: q.Destination, Protocol: fmt.Sprint(q.Protocol), Source: q.Source, From: q.From,
			Hook:     q.Interface,
			Outcomes: []explain.Outcome{{Action: explain.Drop, Probability: third}},
			Walk:     []*explain.Step{{Chain: "c", Matched: third, Lookups: []explain.Lookup{{Set: "s"}}}},
		},
		Unused:    []explain.Unused{{EndpointPlace: ruleset.EndpointPlace{Addr: q.Source}}},
		Forwarder: &explain.Forwarder{Endpoints: []netip.AddrPort{q.Destination}},
	}
}

// A question about a packet, and its answer, pass the socket unchanged.
func TestExplain(t *testing.T) {
	proxy := &fakeProxy{}
	server := newTestServer(t, proxy)
	start(t, server)
	c := mustDial(t, server.path())
	q := explain.Query{
		Destination: netip.MustParseAddrPort("[fd00::1]:80"), Protocol: 'u', Source: netip.MustParseAddr("fd00::2"),
		From: "pod", Interface: "veth&1",
	}
	got, err := c.Explain(t.Context(), q)
	if want := fakeDesired(q); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	proxy.err = http.ErrBodyNotAllowed
	_, err = c.Explain(t.Context(), q)
	expectError(t, err, http.ErrBodyNotAllowed.Error())
	for query, want := range map[string]string{
		"": "parameter destination: ", "destination=10.0.0.1:80": "parameter protocol: ",
		"destination=10.0.0.1:80&protocol=6": "parameter source: ",
	} {
		_, err := c.get(t.Context(), pathExplain+"?"+query)
		expectError(t, err, want)
	}
}
