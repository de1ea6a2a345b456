package proxier

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// dualStack returns a Service ns/svc of both families with a TCP port.
func dualStack(port uint16) *translate.Service {
	svc := tabletest.Service("svc", "10.96.0.1", func(s *cluster.Service) {
		s.Families, s.ClusterIPs = []nft.Family{nft.IPv4, nft.IPv6}, tabletest.Addrs("10.96.0.1", "fd00:96::1")
		s.Ports[0].Port = port
	})
	return &translate.Service{Name: svc.Name, Service: svc}
}

// withIPv6 returns a configuration whose IPv6 table has this OnCommit, and a
// channel that receives each commit of the IPv4 table.
func withIPv6(onCommit func(commit func() error) error) (config Config, committed chan struct{}) {
	config, committed = sampleConfig(), make(chan struct{}, 1000)
	opened := 0
	config.open = func() (keep.Kernel, error) {
		opened++ // IPv4 first
		ipv6 := opened == 2
		return openWith(func(_ *nft.Batch, commit func() error) error {
			if ipv6 {
				return onCommit(commit)
			}
			err := commit()
			if err == nil {
				committed <- struct{}{}
			}
			return err
		})()
	}
	return config, committed
}

// wait waits for a commit.
func wait(t *testing.T, committed <-chan struct{}) {
	t.Helper()
	select {
	case <-committed:
	case <-time.After(5 * time.Second):
		t.Fatal("got no commit of IPv4 within 5 s")
	}
}

// While the commits of one family fail, or one of them hangs, the changes of
// the other one are committed, and queries are answered without it.
func TestFamilyFails(t *testing.T) {
	for _, name := range []string{"fails", "hangs"} {
		t.Run(name, func(t *testing.T) {
			tabletest.NewNamespace(t)
			release := make(chan struct{})
			config, committed := withIPv6(func(func() error) error {
				if name == "hangs" {
					<-release
				}
				return tabletest.ErrCommit
			})
			p := newTestProxier(t, config, nft.IPv4, nft.IPv6)
			p.patience = 100 * time.Millisecond
			p.SetService(dualStack(1))
			p.OnServiceSynced()
			p.OnEndpointSlicesSynced()
			startLoop(t, p)
			t.Cleanup(func() { close(release) })
			for i := range uint16(10) {
				p.SetService(dualStack(1 + i))
				wait(t, committed)
			}
			s := p.Status()
			if !s.Families[0].WaitingSince.IsZero() && s.Families[1].WaitingSince.IsZero() || p.Healthy() {
				t.Errorf("got %+v, want IPv6 that waits and is not healthy", s.Families)
			}
			if name == "hangs" {
				testQueriesOfOneFamily(t, p)
			}
		})
	}
}

// testQueriesOfOneFamily asks a Proxier whose IPv6 loop hangs.
func testQueriesOfOneFamily(t *testing.T, p *Proxier) {
	t.Helper()
	found := false
	err := p.Query(t.Context(), nft.IPv4, func(table *table.Table) error {
		_, found = table.Service(cluster.ServiceName{Namespace: "ns", Name: "svc"})
		return nil
	})
	if !found || err != nil {
		t.Errorf("IPv4: got Service %v, error %v", found, err)
	}
	err = p.Query(t.Context(), nft.IPv6, func(*table.Table) error { return nil })
	if !errors.Is(err, errBusy) || !strings.HasPrefix(err.Error(), "IPv6: ") {
		t.Errorf("IPv6: got %v, want errBusy of IPv6", err)
	}
}

// While another program keeps deleting the table of one family, the other one
// makes its changes, and finds no damage.
func TestFamilyFoughtOver(t *testing.T) {
	tabletest.NewNamespace(t)
	config, committed := withIPv6(func(commit func() error) error { return commit() })
	p := newTestProxier(t, config, nft.IPv4, nft.IPv6)
	p.SetService(dualStack(1))
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
	startLoop(t, p)
	<-p.Synced()
	<-committed
	other, err := nft.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	b := nft.NewBatch(&nft.Table{Family: nft.IPv6, Name: ruleset.TableName})
	b.DeleteTable()
	for i := range uint16(100) {
		if i%5 == 0 {
			other.Commit(b) // it fails while the table does not exist
		}
		p.SetService(dualStack(2 + i))
		wait(t, committed)
	}
	stats := func(f int) *table.Stats { return p.families[f].stats.Load() }
	for stats(1).Rewrites < 2 {
		time.Sleep(checkPeriod)
	}
	if s := stats(0); s.Rewrites != 1 || len(s.Repairs) != 0 {
		t.Errorf("IPv4: got %d rewrites, repairs %v; want 1, none", s.Rewrites, s.Repairs)
	}
}
