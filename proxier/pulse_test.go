package proxier

import (
	"context"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// The pulse wakes an idle loop only when another program committed. It always
// wakes a loop whose last check left something to do.
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
	idle.idle.Store(true)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.pulse.run(ctx, []*syncLoop{idle, other}) }()
	defer func() { stop(); <-done }()
	const patience = 20 * time.Second
	await := func(l *syncLoop) {
		t.Helper()
		select {
		case <-l.checks:
		case <-time.After(patience):
			t.Fatalf("%s is not woken", l.name())
		}
	}
	await(idle) // for the first read, which finds the changes before it
	for range 3 {
		await(other)
	}
	select {
	case <-idle.checks:
		t.Error("an idle loop is woken although no program committed")
	default:
	}
	tabletest.LoadNFT(t, "add table ip other")
	await(idle)
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
