package lab_test

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/must"
)

func TestDo(t *testing.T) {
	l := labtest.New(t)
	where := func() string {
		link, err := os.Readlink("/proc/thread-self/ns/net")
		must.NoError(t, err)
		return link
	}
	home := where()
	seen := map[string]bool{home: true}
	err := l.Client.Do(func() error {
		client := where()
		seen[client] = true
		if err := l.Node1.Do(func() error { seen[where()] = true; return nil }); err != nil {
			return err
		}
		if back := where(); back != client {
			t.Errorf("namespace after an inner Do: got %s, want %s", back, client)
		}
		return io.EOF
	})
	if !errors.Is(err, io.EOF) {
		t.Errorf("Do: got %v, want the error of its function", err)
	}
	if len(seen) != 3 {
		t.Errorf("got %d different namespaces, want 3", len(seen))
	}
	if back := where(); back != home {
		t.Errorf("namespace after Do: got %s, want %s", back, home)
	}
}

func TestCommandKilledWithNamespace(t *testing.T) {
	l := labtest.New(t)
	pod := labtest.AddPod(t, l.Node1, "pod")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sleep := pod.Command(ctx, "sleep", "3600")
	must.NoError(t, sleep.Start())
	must.NoError(t, pod.Remove())
	sleep.Wait()
	if status := sleep.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || ctx.Err() != nil {
		t.Errorf("got %v (%v), want a killed program", sleep.ProcessState, ctx.Err())
	}
}
