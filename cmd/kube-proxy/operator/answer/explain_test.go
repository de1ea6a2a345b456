package answer

import (
	"encoding/json"
	"errors"
	"math/big"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// A question about a packet, and its answer, pass the protocol unchanged.
func TestExplainProtocol(t *testing.T) {
	q := explain.Query{
		Destination: netip.MustParseAddrPort("[fd00::1]:80"), Protocol: 'u', Source: netip.MustParseAddr("fd00::2"),
		From: "pod", Interface: "veth&1",
	}
	const want = "destination=%5Bfd00%3A%3A1%5D%3A80&from=pod&interface=veth%261&protocol=117&source=fd00%3A%3A2"
	if got := Explain.Format(q).Encode(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, err := Explain.Parse(Explain.Format(q)); err != nil || got != q {
		t.Errorf("got %+v, %v; want %+v", got, err, q)
	}
	for query, want := range map[string]string{
		"": "parameter destination: ", "destination=10.0.0.1:80": "parameter protocol: ",
		"destination=10.0.0.1:80&protocol=6": "parameter source: ",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Explain.Parse(values); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s", query, err, want)
		}
	}
	third := big.NewRat(1, 3)
	desired := &explain.Desired{
		Outcomes:  []explain.Outcome{{Action: explain.Drop, Probability: third}},
		Unused:    []explain.Unused{{EndpointPlace: ruleset.EndpointPlace{Addr: q.Source}}},
		Forwarder: &explain.Forwarder{Endpoints: []netip.AddrPort{q.Destination}},
	}
	data, err := json.Marshal(desired)
	got := new(explain.Desired)
	if err = errors.Join(err, json.Unmarshal(data, got)); err != nil || !reflect.DeepEqual(got, desired) {
		t.Errorf("got %+v, %v; want %+v", got, err, desired)
	}
}
