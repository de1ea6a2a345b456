package leftovers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// The Service default/kubernetes of the testdata.
var (
	vips      = map[nft.Family]string{nft.IPv4: "10.96.0.1:443", nft.IPv6: "[fd00:96::1]:443"}
	endpoints = map[nft.Family]string{nft.IPv4: "10.244.0.1:6443", nft.IPv6: "[fd00:244::1]:6443"}
)

// successor is what takes over the Service of a family, in nftables mode.
var successor = map[nft.Family]string{
	nft.IPv4: `table ip kube-proxy { chain nat-output { type nat hook output priority -100; ip daddr 10.96.0.1 tcp dport 443 dnat to 10.244.0.1:6443; }; }`,
	nft.IPv6: `table ip6 kube-proxy { chain nat-output { type nat hook output priority -100; ip6 daddr fd00:96::1 tcp dport 443 dnat to [fd00:244::1]:6443; }; }`,
}

func TestRemoveUnderTraffic(t *testing.T) {
	for _, variant := range variants {
		for _, family := range families {
			t.Run(variant+" "+family.String(), func(t *testing.T) {
				n := newNode(t, family)
				load(t, family, variant, "")
				under := n.dial()
				if under == nil || !echoes(under) {
					t.Fatalf("no connection by the rules of kube-proxy: %v", n.failure())
				}
				defer under.Close()
				run(t, successor[family], "nft", "-f", "-")
				stop := n.connectAgainAndAgain(2)
				for range 5 {
					load(t, family, variant, "")
					before := n.connected.Load()
					for n.connected.Load() < before+20 && n.failure() == nil {
						time.Sleep(time.Millisecond)
					}
					remove(t)
					for n.connected.Load() < before+40 && n.failure() == nil {
						time.Sleep(time.Millisecond)
					}
				}
				stop()
				if err := n.failure(); err != nil {
					t.Errorf("after %d connections: %v", n.connected.Load(), err)
				}
				if !echoes(under) {
					t.Error("a connection by the rules of kube-proxy ended when they went")
				}

				run(t, "", "nft", "delete", "table", family.String(), "kube-proxy")
				if conn := n.dial(); conn != nil {
					t.Error("there is a connection without any rules")
				}
			})
		}
	}
}

// node is a namespace with an endpoint that answers, and clients in it.
type node struct {
	family    nft.Family
	namespace *os.File
	connected atomic.Int64
	failed    atomic.Pointer[error]
}

func newNode(t *testing.T, family nft.Family) *node {
	t.Helper()
	newNamespace(t)
	namespace, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { namespace.Close() })
	n := &node{family: family, namespace: namespace}
	host, _, _ := net.SplitHostPort(endpoints[family])
	if family == nft.IPv4 {
		run(t, "", "ip", "addr", "add", host+"/32", "dev", "lo")
		run(t, "", "ip", "route", "add", "default", "dev", "lo")
	} else {
		run(t, "", "ip", "addr", "add", host+"/128", "dev", "lo", "nodad")          // or it could not be used at once
		for run(t, "", "ip", "-6", "route", "show", "table", "local", host) == "" { // which the kernel makes a while after the address
			time.Sleep(time.Millisecond)
		}
		run(t, "", "ip", "-6", "route", "add", "default", "dev", "lo")
	}
	listener, err := net.Listen("tcp", endpoints[family])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return n
}

// dial connects to the Service from the calling thread's namespace; nil if that fails.
func (n *node) dial() net.Conn {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // no connection waits for anything but a lost packet
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", vips[n.family])
	if err != nil {
		n.failed.CompareAndSwap(nil, &err)
		return nil
	}
	n.connected.Add(1)
	return conn
}

func (n *node) failure() error {
	if err := n.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// connectAgainAndAgain lets some clients connect until stop is called.
func (n *node) connectAgainAndAgain(clients int) (stop func()) {
	var stopped atomic.Bool
	var wait sync.WaitGroup
	for range clients {
		wait.Go(func() {
			runtime.LockOSThread() // and the thread ends with the client
			if err := unix.Setns(int(n.namespace.Fd()), unix.CLONE_NEWNET); err != nil {
				err = fmt.Errorf("enter namespace: %w", err)
				n.failed.CompareAndSwap(nil, &err)
			}
			for !stopped.Load() && n.failure() == nil {
				conn := n.dial()
				if conn == nil {
					return
				}
				if !echoes(conn) {
					err := errors.New("no answer")
					n.failed.CompareAndSwap(nil, &err)
				}
				conn.Close()
			}
		})
	}
	return func() {
		stopped.Store(true)
		wait.Wait()
	}
}

// echoes says whether the other end sends back what it gets.
func echoes(conn net.Conn) bool {
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	sent, got := []byte("hello"), make([]byte, 5)
	if _, err := conn.Write(sent); err != nil {
		return false
	}
	_, err := io.ReadFull(conn, got)
	return err == nil && string(got) == string(sent)
}
