package xtables

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func TestLock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "xtables.lock")
	unlock, err := lock(t.Context(), file, 0)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("got lock file %v, error %v, want mode 0600", info, err)
	}
	want := "lock " + file + ": held by another program for 30ms"
	if _, err := lock(t.Context(), file, 30*time.Millisecond); err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
	if _, err := exec.Command("flock", "-n", file, "true").Output(); err == nil {
		t.Error("flock: got the lock while it was held")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lock(ctx, file, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}

	time.AfterFunc(30*time.Millisecond, unlock)
	unlock, err = lock(t.Context(), file, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	unlock()

	for _, unusable := range []string{
		filepath.Join(file, "below-a-file"), filepath.Join(t.TempDir(), "missing", "lock"), t.TempDir(),
	} {
		unlock, err := lock(t.Context(), unusable, 0)
		if err != nil {
			t.Fatalf("%s: got error %v, want none", unusable, err)
		}
		unlock()
	}
}
