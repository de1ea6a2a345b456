package proxier

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/calm"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// The pulse wakes an idle loop when another program committed, and now and
// then. It always wakes a loop whose last check left something to do.
func TestPulse(t *testing.T) {
	t.Parallel()
	tabletest.NewNamespace(t)
	p := newTestProxier(t, sampleConfig(), nft.IPv4, nft.IPv6)
	for _, f := range p.families {
		if tabletest.Sync(t, f.table); !f.table.IsIdle() {
			t.Errorf("%s is not idle after a rewrite", f.name())
		}
	}
	idle, other := newSyncLoop(p.families[0]), newSyncLoop(p.families[1])
	loops := []*syncLoop{idle, other}
	idle.idle.Store(true)
	now := time.Now()
	const all, first, second = 3, 1, 2
	for _, step := range []struct {
		name  string
		do    func()
		after time.Duration
		woken int           // the sum of the loops
		next  time.Duration // after this one
	}{
		{"the first read finds the changes before it", nil, 0, all, pollPeriod},
		{"a check of one loop left something to do", nil, pollPeriod, second, pollPeriod},
		{"nothing", func() { other.idle.Store(true) }, pollPeriod, 0, pollPeriod},
		{"another program committed", func() { tabletest.LoadNFT(t, "add table ip a") }, pollPeriod, all, pollPeriod},
		{"checks are due", nil, checkPeriod, all, pollPeriod},
		{"calm, and checks are due", nil, calm.Delay, all, calmPollPeriod},
		{"nothing in calm", nil, calmCheckPeriod - calmPollPeriod, 0, calmPollPeriod},
		{"checks are due in calm", nil, calmPollPeriod, all, calmPollPeriod},
		{"a commit in calm", func() { tabletest.LoadNFT(t, "add table ip b") }, calmPollPeriod, all, pollPeriod},
		{"nothing any more", nil, pollPeriod, 0, pollPeriod},
		{"a check left something to do in calm", func() { idle.idle.Store(false) }, calm.Delay, all, pollPeriod},
	} {
		if step.do != nil {
			step.do()
		}
		now = now.Add(step.after)
		p.pulse.poll(now, loops)
		next := p.pulse.next(now).Sub(now)
		woken := first*len(idle.checks) + second*len(other.checks)
		if woken != step.woken || next > step.next || next <= step.next-calm.Beat {
			t.Errorf("%s: woke loops %d, polls after %s; want %d, %s", step.name, woken, next, step.woken, step.next)
		}
		for _, l := range loops {
			for len(l.checks) > 0 {
				<-l.checks
			}
		}
	}
}

// After a commit of another program, the time of the next poll is random.
func TestPulseIsRandom(t *testing.T) {
	now := time.Now()
	p := &pulse{calm: calm.New(now)}
	for _, c := range []struct{ isNew, varies bool }{{false, false}, {true, true}} {
		p.isNew = c.isNew
		first, varies := p.next(now), false
		for range 100 {
			next := p.next(now)
			varies = varies || !next.Equal(first)
			if next.After(now.Add(pollPeriod)) {
				t.Errorf("after a commit %v: polls after %v", c.isNew, next.Sub(now))
			}
		}
		if varies != c.varies {
			t.Errorf("after a commit %v: the time varies: %v", c.isNew, varies)
		}
	}
}

// The pulse polls until its context ends.
func TestPulseRuns(t *testing.T) {
	t.Parallel()
	tabletest.NewNamespace(t)
	p := newTestProxier(t, sampleConfig(), nft.IPv4)
	l := newSyncLoop(p.families[0])
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.pulse.run(ctx, []*syncLoop{l}) }()
	for range 3 {
		<-l.checks
	}
	stop()
	<-done
}

// Each sign of life makes a calm node alert, and nothing else does.
func TestSignsOfLife(t *testing.T) {
	t.Parallel()
	tabletest.NewNamespace(t)
	p := newTestProxier(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(p.sink)
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
	loop := newSyncLoop(p.families[0])
	p.onLocalAddresses(tabletest.Addrs("172.30.0.11"))
	loop.attempt("Sync", loop.table.Sync)
	loop.check()
	p.pulse.poll(time.Now(), []*syncLoop{loop}) // finds the changes before it
	object := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "ns", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
			UID: types.UID(name),
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	zoned := node.DeepCopy()
	zoned.Labels = map[string]string{corev1.LabelTopologyZone: "a"}
	for _, sign := range []struct {
		name  string
		make  func()
		alert bool
	}{
		{"nothing changes", func() {
			p.onLocalAddresses(tabletest.Addrs("172.30.0.11"))
			p.OnNodeUpdate(nil, node)
			loop.attempt("Resync", loop.table.Resync)
			loop.check()
		}, false},
		{"a Service", func() { p.OnServiceAdd(&corev1.Service{ObjectMeta: object("web")}) }, true},
		{"an EndpointSlice", func() {
			p.OnEndpointSliceAdd(&discoveryv1.EndpointSlice{
				ObjectMeta: object("web-1"), AddressType: discoveryv1.AddressTypeIPv4,
				Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.5"}}},
			})
		}, true},
		{"the Node", func() { p.OnNodeUpdate(nil, zoned) }, true},
		{"the addresses of the node", func() { p.onLocalAddresses(tabletest.Addrs("172.30.0.12")) }, true},
		{"a source that calls Sync", p.Sync, true},
		{"another program commits", func() { tabletest.LoadNFT(t, "add table ip other") }, true},
		{"a check leaves something to do", func() { loop.idle.Store(false) }, true},
	} {
		state := calm.New(time.Now().Add(-2 * calm.Delay))
		disturbed := state.Disturbed()
		p.calm, p.pulse.calm = state, state
		sign.make()
		p.pulse.poll(time.Now(), []*syncLoop{loop})
		if alert := len(disturbed) > 0; alert != sign.alert {
			t.Errorf("%s: alert is %v, want %v", sign.name, alert, sign.alert)
		}
		loop.attempt("Sync", loop.table.Sync)
		loop.check()
	}
}

// A loop that may not check its table yet is not idle.
func TestCheckTooEarly(t *testing.T) {
	p, err := assemble(sampleConfig(), nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	l := newSyncLoop(p.families[0])
	l.idle.Store(true)
	l.checkAfter = time.Now().Add(time.Hour)
	if l.check(); l.idle.Load() {
		t.Error("idle before the check")
	}
}
