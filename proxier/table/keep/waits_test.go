package keep_test

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A change waits since it was made, also if a sync fails meanwhile.
func TestWaitsSinceTheChange(t *testing.T) {
	t.Parallel()
	f := newServing(t)
	f.set("dns", "53")
	since := f.Waits()[0].Since
	for range 2 {
		f.answer(unix.EPERM)
		if err := f.Sync(); err == nil {
			t.Fatal("the sync must fail")
		}
		if now := f.Waits()[0].Since; !now.Equal(since) {
			t.Fatalf("after a failure: waits since %v, want %v", now, since)
		}
	}
	f.sync(t)
	if waits := f.Waits(); len(waits) > 0 {
		t.Errorf("after the sync: got %v", waits)
	}
}
