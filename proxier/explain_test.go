package proxier

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// packetTo returns a TCP packet of a pod.
func packetTo(to string) explain.Query {
	return explain.Query{
		Destination: netip.MustParseAddrPort(to), Protocol: unix.IPPROTO_TCP, Source: netip.MustParseAddr("10.244.1.7"),
	}
}

// explained explains a packet while queries are answered.
func explained(t *testing.T, p *Proxier, q explain.Query) (d *explain.Desired, err error) {
	t.Helper()
	answering(t, p, func(ctx context.Context) { d, err = p.Explain(ctx, q) })
	return d, err
}

// newListed returns a Proxier that has received the first lists.
func newListed(t *testing.T, config Config) *Proxier {
	t.Helper()
	p := newTestProxier(t, config, nft.IPv4)
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
	p.sink.SetNode(tabletest.Node())
	return p
}

// A question that the Proxier cannot answer is an error.
func TestExplainErrors(t *testing.T) {
	tabletest.NewNode(t)
	p := newTestProxier(t, sampleConfig(), nft.IPv4)
	if _, err := explained(t, p, packetTo("10.96.0.10:80")); !errors.Is(err, errNotListed) {
		t.Errorf("before the first lists: got error %v", err)
	}
	if _, err := explained(t, p, packetTo("[fd00::1]:80")); err == nil || !strings.Contains(err.Error(), "IPv6") {
		t.Errorf("another family: got error %v", err)
	}
	p = newListed(t, sampleConfig())
	q := packetTo("10.96.0.10:80")
	q.Source = netip.MustParseAddr("fd00::1")
	if _, err := explained(t, p, q); err == nil {
		t.Error("source of another family: got no error")
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := p.Explain(ctx, packetTo("10.96.0.10:80")); !errors.Is(err, errBusy) {
		t.Errorf("busy: got error %v", err)
	}
}

// The answer has the reason why the kernel may not have the table yet.
func TestExplainPending(t *testing.T) {
	tabletest.NewNode(t)
	p := newListed(t, sampleConfig())
	web := tabletest.Service("web", "10.96.0.10", nil)
	p.SetService(&translate.Service{Name: web.Name, Service: web})
	expect := func(want string) {
		t.Helper()
		d, err := explained(t, p, packetTo("10.96.0.10:80"))
		if err != nil || !strings.Contains(d.Pending, want) || (want == "" && d.Pending != "") {
			t.Errorf("got %+v, %v; want pending %q", d, err, want)
		}
	}
	expect("waiting for the next sync")
	if err := p.families[0].health.during(p.families[0].sync); err != nil {
		t.Fatal(err)
	}
	expect("")
	p.families[0].lastSync.Store(&lastSync{table.SyncResult{Err: errors.New("no space")}, time.Now()})
	expect("the last sync failed: no space")
}

// The answer has a note if the owner of the frontend cannot be served.
func TestExplainRefused(t *testing.T) {
	tabletest.NewNode(t)
	p := newListed(t, sampleConfig())
	svc := tabletest.Service(strings.Repeat("x", 300), "10.96.0.66", func(s *cluster.Service) {
		s.AffinityTimeout = time.Hour // the names of its chains are too long
	})
	p.sink.SetService(svc)
	p.sink.SetEndpoint(svc.Name, tabletest.Endpoint("10.244.0.1"))
	tabletest.Sync(t, p.sink)
	d, err := explained(t, p, packetTo("10.96.0.66:80"))
	if err != nil {
		t.Fatal(err)
	}
	want := svc.Name.WithPort("http") + " keeps what is left of its last rules, because the new ones cannot be written: "
	if len(d.Notes) != 1 || !strings.HasPrefix(d.Notes[0], want) || len(d.Unused) > 0 {
		t.Errorf("got %+v, want note %s", d, want)
	}
}
