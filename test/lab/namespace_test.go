package lab_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

func TestDo(t *testing.T) {
	l := labtest.New(t)
	where := func() string {
		link, err := os.Readlink("/proc/thread-self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
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

func TestCommand(t *testing.T) {
	l := labtest.New(t)
	child := l.Node2.Command(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childTask+"=addrs")
	out, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "172.30.0.12/24") {
		t.Errorf("addresses in node2: got %s, want 172.30.0.12/24", out)
	}
}

func TestCommandKilledWithNamespace(t *testing.T) {
	l := labtest.New(t)
	pod := labtest.AddPod(t, l.Node1, "pod")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sleep := pod.Command(ctx, "sleep", "3600")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	if err := pod.Remove(); err != nil {
		t.Fatal(err)
	}
	sleep.Wait()
	if status := sleep.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || ctx.Err() != nil {
		t.Errorf("got %v (%v), want a killed program", sleep.ProcessState, ctx.Err())
	}
}

func TestSysctl(t *testing.T) {
	l := labtest.New(t)
	for _, check := range []struct {
		in   *lab.Namespace
		want string
	}{{l.Client, "0\n"}, {l.Node1.Namespace, "1\n"}, {l.Node2.Namespace, "1\n"}} {
		got, err := check.in.Command(t.Context(), "cat", "/proc/sys/net/ipv4/ip_forward").Output()
		if err != nil || string(got) != check.want {
			t.Errorf("ip_forward of %s: got %q, %v; want %q", check.in.Name, got, err, check.want)
		}
	}
	if err := l.Client.SetSysctl("net.ipv4.no_such_parameter", "1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("unknown parameter: got %v, want os.ErrNotExist", err)
	}
}

func TestDialContextForHTTP(t *testing.T) {
	l := labtest.New(t)
	for _, addr := range l.Node1.Addrs() {
		at := netip.AddrPortFrom(addr, 10256)
		listener, err := l.Node1.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.RemoteAddr)
		})}
		go server.Serve(listener)
		t.Cleanup(func() { server.Close() })

		_, body, err := l.Client.Get(t.Context(), "http://"+at.String(), 0)
		if err != nil {
			t.Fatal(err)
		}
		seen, err := netip.ParseAddrPort(string(body))
		if err != nil || (seen.Addr() != l.Client.IPv4 && seen.Addr() != l.Client.IPv6) {
			t.Errorf("source address at the server: got %s (%v), want the client's", body, err)
		}
	}
}
