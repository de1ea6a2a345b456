package proxier

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// sampleConfig returns the configuration for the sample Services.
func sampleConfig() Config {
	rules := tabletest.Rules()
	return Config{NodeName: "node1", DetectLocal: rules.DetectLocal, NodePortAddresses: rules.NodePortAddresses}
}

// newTestProxier returns a Proxier in the network namespace of the test.
func newTestProxier(t testing.TB, config Config, families ...nft.Family) *Proxier {
	t.Helper()
	p, err := newProxier(config, families...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// openWith returns a Config.open whose kernel calls onCommit for each commit.
func openWith(onCommit func(b *nft.Batch, commit func() error) error) func() (table.Kernel, error) {
	return func() (table.Kernel, error) {
		conn, err := nft.Open()
		return &tabletest.Kernel{Conn: conn, OnCommit: onCommit}, err
	}
}

// A resync that comes before the first sync, over a table that packets use, writes what there is, and not an empty table.
func TestResyncComesFirst(t *testing.T) {
	tabletest.NewNamespace(t)
	first := newTestProxier(t, sampleConfig(), nft.IPv4)
	first.sink.SetService(tabletest.Service("web", "10.96.0.1", nil))
	tabletest.Sync(t, first.sink)

	p := newTestProxier(t, sampleConfig(), nft.IPv4)
	p.OnServiceAdd(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Port: 80}}},
	})
	loop := &syncLoop{proxier: p}
	loop.run("Resync", p.resync) // nothing is known yet: nothing is done
	select {
	case <-p.Synced():
		t.Fatal("synced before the lists were told")
	default:
	}
	p.OnEndpointSlicesSynced()
	p.OnServiceSynced()
	loop.run("Resync", p.resync)
	if rows := p.families[0].table.Stats().Rows["no-endpoint-services"]; rows != 1 {
		t.Errorf("%d rows of Services without endpoints after a resync before the first sync, want 1", rows)
	}
	select {
	case <-p.Synced():
	default:
		t.Error("not synced")
	}
}

// A sync that takes longer than changes may wait is not healthy while it lasts.
func TestHealthDuringALongSync(t *testing.T) {
	h := &health{patience: 20 * time.Millisecond}
	h.watch(nft.IPv4, func() bool { return true })
	if err := h.during(func() error { return nil }); err != nil || !h.ok() {
		t.Fatalf("%v, healthy: %v", err, h.ok())
	}
	h.changed()
	h.during(func() error {
		if !h.ok() {
			t.Error("not healthy at the beginning")
		}
		time.Sleep(2 * h.patience)
		if h.ok() {
			t.Error("healthy while a sync hangs")
		}
		return nil
	})
	if !h.ok() {
		t.Error("not healthy afterwards")
	}
}

// Times of changes are kept for families that are served, and for no others.
func TestTriggers(t *testing.T) {
	m := newMetrics()
	tr := newTracker(new(Config), eventLog{}, m, nft.IPv4)
	for i := range 3 {
		for address, typ := range map[string]discoveryv1.AddressType{fmt.Sprint("10.244.0.", i+1): "IPv4", fmt.Sprint("fd00::", i+1): "IPv6"} {
			tr.setSlice(translate.ParseEndpointSlice(&discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "default", Name: string(typ), Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
					Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().Add(time.Minute).Format(time.RFC3339Nano)},
				},
				AddressType: typ, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
			}))
		}
	}
	if n := len(tr.triggers[nft.IPv6]); n != 0 {
		t.Errorf("%d times are kept of a family that is not served", n)
	}
	if n := len(tr.takeTriggers(nft.IPv4)); n != 3 {
		t.Errorf("%d times of IPv4, want 3", n)
	}
	if n := len(tr.takeTriggers(nft.IPv4)); n != 0 {
		t.Errorf("%d times are told twice", n)
	}
}

// After a sync the loop rests in proportion to what it took, but not for long.
func TestRestAfter(t *testing.T) {
	for sync, want := range map[time.Duration]time.Duration{
		0: 0, time.Millisecond: 3 * time.Millisecond, 30 * time.Millisecond: 90 * time.Millisecond, time.Minute: 100 * time.Millisecond,
	} {
		if got := restAfter(sync); got != want {
			t.Errorf("after %s it rests for %s, want %s", sync, got, want)
		}
	}
	m := newMetrics()
	l := &syncLoop{proxier: &Proxier{
		tracker: newTracker(new(Config), eventLog{}, m), health: &health{}, metrics: m, synced: make(chan struct{}),
	}}
	l.proxier.tracker.servicesSynced, l.proxier.tracker.slicesSynced = true, true
	const work = 5 * time.Millisecond
	l.run("Sync", func() error { time.Sleep(work); return nil })
	if l.rest < 3*work || l.last.IsZero() {
		t.Errorf("after a sync of %s it rests for %s", work, l.rest)
	}
}

// While commits keep failing, changes do not make the loop try again before its
// delay is over, and what is remembered of them has a limit.
func TestLoopBacksOff(t *testing.T) {
	tabletest.NewNamespace(t)
	var commits atomic.Int64
	config := sampleConfig()
	config.open = openWith(func(*nft.Batch, func() error) error {
		commits.Add(1)
		return tabletest.ErrCommit
	})
	p := newTestProxier(t, config, nft.IPv4)
	p.OnEndpointSlicesSynced()
	p.OnServiceSynced()
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.SyncLoop(ctx)
	}()
	changes := 0
	for ; ctx.Err() == nil; changes++ {
		p.OnServiceAdd(&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "svc"},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Port: int32(1 + changes%1000)}}},
		})
		time.Sleep(time.Millisecond)
	}
	<-done
	// Delays are 0.1, 0.2, 0.4 and 0.8 s.
	if n := commits.Load(); n == 0 || n > 6 {
		t.Errorf("%d commits in 1 s with %d changes, want at most 6", n, changes)
	}
	f := p.families[0]
	p.tracker.triggers[nft.IPv4] = make([]time.Time, maxTriggers-1)
	p.handOver()
	p.tracker.triggers[nft.IPv4] = make([]time.Time, 100)
	p.handOver()
	if len(f.triggers) != maxTriggers {
		t.Errorf("%d triggers are remembered, want %d", len(f.triggers), maxTriggers)
	}
}

// While syncs wait for minSyncPeriod, the tables are still checked.
func TestChecksWhileSyncsWait(t *testing.T) {
	tabletest.NewNamespace(t)
	config := sampleConfig()
	config.MinSyncPeriod = 20 * time.Second
	p := newTestProxier(t, config, nft.IPv4)
	tabletest.PassSample(p.sink)
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.SyncLoop(ctx)
	}()
	defer func() { stop(); <-done }()
	<-p.Synced()
	p.Sync() // has to wait
	time.Sleep(2 * checkPeriod)
	conn, err := nft.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	tabletest.NFT(t, "", "delete", "table", "ip", ruleset.TableName)
	for range 200 {
		if _, ok, err := conn.FindChain(&nft.Table{Family: nft.IPv4, Name: ruleset.TableName}, "nat-output"); ok && err == nil {
			return
		}
		p.Sync()
		time.Sleep(checkPeriod)
	}
	t.Error("the table was not restored within half of minSyncPeriod")
}

// A repair that fails is tried again by the loop.
func TestFailedRepairIsTriedAgain(t *testing.T) {
	tabletest.NewNamespace(t)
	fail := false
	config := sampleConfig()
	config.open = openWith(func(_ *nft.Batch, commit func() error) error {
		if fail {
			fail = false
			return tabletest.ErrCommit
		}
		return commit()
	})
	p := newTestProxier(t, config, nft.IPv4)
	tabletest.PassSample(p.sink)
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
	tabletest.Sync(t, p.sink)
	fail = true
	tabletest.NFT(t, "", "delete", "table", "ip", ruleset.TableName)
	<-p.wake // so that only the failed check asks for a sync
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.SyncLoop(ctx)
	}()
	restored := false
	for !restored && ctx.Err() == nil {
		out := tabletest.NFT(t, "", "list", "tables")
		restored = strings.Contains(out, ruleset.TableName)
		time.Sleep(checkPeriod)
	}
	stop()
	<-done
	if !restored {
		t.Error("the table was not restored")
	}
}
