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

	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

func TestDoIsInTheNamespaceAndComesBack(t *testing.T) {
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
			t.Errorf("after an inner Do in %s, was in %s before", back, client)
		}
		return io.EOF
	})
	if !errors.Is(err, io.EOF) {
		t.Errorf("Do returned %v, want the error of its function", err)
	}
	if len(seen) != 3 {
		t.Errorf("three places were %d different namespaces", len(seen))
	}
	if back := where(); back != home {
		t.Errorf("after Do in %s, was in %s before", back, home)
	}
}

func TestCommandRunsInTheNamespace(t *testing.T) {
	l := labtest.New(t)
	child := l.Node2.Command(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childTask+"=addrs")
	out, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "172.30.0.12/24") {
		t.Errorf("a program in node2 sees no address of node2: %s", out)
	}
}

func TestCommandEndsWithTheNamespace(t *testing.T) {
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
		t.Errorf("the program ended with %v (%v), want that it was killed with its namespace", sleep.ProcessState, ctx.Err())
	}
}

func TestSysctl(t *testing.T) {
	l := labtest.New(t)
	const name = "net.ipv4.ip_forward"
	for _, check := range []struct {
		in   interface{ Sysctl(string) (string, error) }
		want string
	}{{l.Client, "0"}, {l.Node1, "1"}, {l.Node2, "1"}} {
		if got, err := check.in.Sysctl(name); err != nil || got != check.want {
			t.Errorf("%s: %q, %v; want %s", name, got, err, check.want)
		}
	}
	if err := l.Client.SetSysctl("net.ipv4.no_such_parameter", "1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a parameter that does not exist: %v", err)
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

		client := http.Client{Transport: &http.Transport{DialContext: l.Client.DialContext, DisableKeepAlives: true}}
		response, err := client.Get("http://" + at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		seen, err := netip.ParseAddrPort(string(body))
		if err != nil || (seen.Addr() != l.Client.IPv4 && seen.Addr() != l.Client.IPv6) {
			t.Errorf("the server saw %s, want the client's address (%v)", body, err)
		}
	}
}
