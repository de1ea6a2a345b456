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
)

// A resync that comes before the first sync, over a table that packets use, writes what there is, and not an empty table.
func TestResyncComesFirst(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	b.SetService(simpleService("web", "10.96.0.1", nil))
	mustSync(t, b)

	p, err := newProxier(*sampleConfig(), nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
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
	var text strings.Builder
	if err := p.backends[0].Fprint(&text); err != nil {
		t.Fatal(err)
	}
	if rows := p.backends[0].have.rows["no-endpoint-services"]; rows != 1 {
		t.Errorf("%d rows of services without endpoints after a resync that came first, want 1:\n%s", rows, &text)
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
	tr := newTracker(new(Config), m, nft.IPv4)
	for i := range 3 {
		for address, typ := range map[string]discoveryv1.AddressType{fmt.Sprint("10.244.0.", i+1): "IPv4", fmt.Sprint("fd00::", i+1): "IPv6"} {
			tr.setSlice(TranslateEndpointSlice(&discoveryv1.EndpointSlice{
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
	l := &syncLoop{proxier: &Proxier{tracker: newTracker(new(Config), newMetrics()), health: &health{}, metrics: newMetrics(), synced: make(chan struct{})}}
	l.proxier.tracker.servicesSynced, l.proxier.tracker.slicesSynced = true, true
	const work = 5 * time.Millisecond
	l.run("Sync", func() error { time.Sleep(work); return nil })
	if l.rest < 3*work || l.last.IsZero() {
		t.Errorf("after a sync of %s it rests for %s", work, l.rest)
	}
}

// countingFailures counts the commits that it refuses.
type countingFailures struct {
	kernel
	commits atomic.Int64
}

func (k *countingFailures) Commit(*nft.Batch) error {
	k.commits.Add(1)
	return errFailing
}

// While commits keep failing, changes do not make the loop try again before its
// delay is over, and what is remembered of them has a limit.
func TestLoopBacksOff(t *testing.T) {
	newNamespace(t)
	p, err := newProxier(*sampleConfig(), nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	k := &countingFailures{kernel: p.backends[0].kernel}
	p.backends[0].kernel = k
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
	if n := k.commits.Load(); n == 0 || n > 6 {
		t.Errorf("%d commits in 1 s with %d changes, want at most 6", n, changes)
	}
	b := p.backends[0]
	p.tracker.triggers[nft.IPv4] = make([]time.Time, maxTriggers-1)
	p.handOver()
	p.tracker.triggers[nft.IPv4] = make([]time.Time, 100)
	p.handOver()
	if len(b.triggers) != maxTriggers {
		t.Errorf("%d triggers are remembered, want %d", len(b.triggers), maxTriggers)
	}
}
