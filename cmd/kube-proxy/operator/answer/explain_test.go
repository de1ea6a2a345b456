package answer

import (
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// packetTo returns a TCP packet of a pod.
func packetTo(to string) explain.Query {
	return explain.Query{
		Destination: netip.MustParseAddrPort(to), Protocol: unix.IPPROTO_TCP, Source: netip.MustParseAddr("10.244.1.7"),
	}
}

// A question that the proxy cannot answer is an error.
func TestExplainErrors(t *testing.T) {
	tabletest.NewNode(t)
	a, p := newAnswers(t, nft.IPv4)
	p.notListed = true
	if _, err := one(t, a.explain, packetTo("10.96.0.10:80")); !errors.Is(err, errNotListed) {
		t.Errorf("before the first lists: got error %v", err)
	}
	if _, err := one(t, a.explain, packetTo("[fd00::1]:80")); err == nil ||
		!strings.Contains(err.Error(), "IPv6") {
		t.Errorf("another family: got error %v", err)
	}
	p.notListed = false
	p.setUp(t)
	q := packetTo("10.96.0.10:80")
	q.Source = netip.MustParseAddr("fd00::1")
	if _, err := one(t, a.explain, q); err == nil {
		t.Error("source of another family: got no error")
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := a.explain(ctx, packetTo("10.96.0.10:80"), nil); !errors.Is(err, errBusy) {
		t.Errorf("busy: got error %v", err)
	}
}

// The answer has the reason why the kernel may not have the table yet.
func TestExplainPending(t *testing.T) {
	tabletest.NewNode(t)
	a, p := newAnswers(t, nft.IPv4)
	p.setUp(t)
	p.SetService(tabletest.Service("web", "10.96.0.10", nil))
	expect := func(want string) {
		t.Helper()
		d, err := one(t, a.explain, packetTo("10.96.0.10:80"))
		if err != nil || !strings.Contains(d.Pending, want) || (want == "" && d.Pending != "") {
			t.Errorf("got %+v, %v; want pending %q", d, err, want)
		}
	}
	p.state.WaitingSince = time.Now()
	expect("waiting for the next sync")
	p.state.WaitingSince = time.Time{}
	expect("")
	p.state.LastSync = &proxier.SyncStatus{Error: "no space"}
	expect("the last sync failed: no space")
}

// The answer has a note if the owner of the frontend cannot be served.
func TestExplainRefused(t *testing.T) {
	tabletest.NewNode(t)
	a, p := newAnswers(t, nft.IPv4)
	p.setUp(t)
	svc := tabletest.Service(strings.Repeat("x", 300), "10.96.0.66", func(s *cluster.Service) {
		s.AffinityTimeout = time.Hour // the names of its chains are too long
	})
	p.SetService(svc)
	tabletest.SetEndpoint(p, svc.Name, tabletest.Endpoint("10.244.0.1"))
	tabletest.Sync(t, p)
	d, err := one(t, a.explain, packetTo("10.96.0.66:80"))
	if err != nil {
		t.Fatal(err)
	}
	want := svc.Name.WithPort("http") +
		" keeps what is left of its last rules, because the new ones cannot be written: "
	if len(d.Notes) != 1 || !strings.HasPrefix(d.Notes[0], want) || len(d.Unused) > 0 {
		t.Errorf("got %+v, want note %s", d, want)
	}
}

// The answer has a note if a Service exceeds its budget, also for an external
// IP that is left out for this reason.
func TestExplainReduced(t *testing.T) {
	tabletest.NewNode(t)
	rules := tabletest.Rules()
	rules.Budgets.Service = 20
	a, p := newAnswersWith(t, rules, nft.IPv4)
	p.setUp(t)
	svc := tabletest.Service("web", "10.96.0.10", func(s *cluster.Service) {
		for i := range byte(30) {
			s.ExternalIPs = append(s.ExternalIPs, netip.AddrFrom4([4]byte{192, 0, 2, i}))
		}
	})
	p.SetService(svc)
	tabletest.SetEndpoint(p, svc.Name, tabletest.Endpoint("10.244.0.1"))
	tabletest.Sync(t, p)
	owned := 0
	for _, ip := range append(svc.ExternalIPs, svc.ClusterIPs...) {
		d, err := one(t, a.explain, packetTo(netip.AddrPortFrom(ip, 80).String()))
		if err != nil {
			t.Fatal(err)
		}
		const want = "Service ns/web exceeds its budget of 20 rows: it is served with "
		if len(d.Notes) != 1 || !strings.HasPrefix(d.Notes[0], want) {
			t.Errorf("%s: got notes %q, want %s", ip, d.Notes, want)
		}
		if d.ServicePort != "" {
			owned++
		}
	}
	if owned < 2 || owned > 20 {
		t.Errorf("%d addresses are served", owned)
	}
	d, err := one(t, a.explain, packetTo("192.0.2.1:81"))
	if err != nil || len(d.Notes) > 0 {
		t.Errorf("another port: got %+v, %v", d, err)
	}
}

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
		Result: &explain.Result{
			Destination: q.Destination, Protocol: "udp", Source: q.Source, From: q.From, Hook: q.Interface,
			Outcomes: []explain.Outcome{{Action: explain.Drop, Probability: third}},
			Walk:     []*explain.Step{{Chain: "c", Matched: third, Lookups: []explain.Lookup{{Set: "s"}}}},
		},
		Unused:    []explain.Unused{{EndpointPlace: ruleset.EndpointPlace{Addr: q.Source}}},
		Forwarder: &explain.Forwarder{Endpoints: []netip.AddrPort{q.Destination}},
	}
	data, err := json.Marshal(desired)
	got := new(explain.Desired)
	if err = errors.Join(err, json.Unmarshal(data, got)); err != nil || !reflect.DeepEqual(got, desired) {
		t.Errorf("got %+v, %v; want %+v", got, err, desired)
	}
}
