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

// The clusterIPs and endpoints of the Service default/kubernetes in testdata.
var (
	vips      = map[nft.Family]string{nft.IPv4: "10.96.0.1:443", nft.IPv6: "[fd00:96::1]:443"}
	endpoints = map[nft.Family]string{nft.IPv4: "10.244.0.1:6443", nft.IPv6: "[fd00:244::1]:6443"}
)

// nftablesMode has the rules of the nftables mode for the Service.
var nftablesMode = map[nft.Family]string{
	nft.IPv4: `table ip kube-proxy {
		chain nat-output {
			type nat hook output priority -100
			ip daddr 10.96.0.1 tcp dport 443 dnat to 10.244.0.1:6443
		}
	}`,
	nft.IPv6: `table ip6 kube-proxy {
		chain nat-output {
			type nat hook output priority -100
			ip6 daddr fd00:96::1 tcp dport 443 dnat to [fd00:244::1]:6443
		}
	}`,
}

// A removal breaks neither new nor established connections.
func TestRemoveUnderTraffic(t *testing.T) {
	for _, variant := range variants {
		for _, family := range families {
			t.Run(variant+" "+family.String(), func(t *testing.T) {
				n := newNode(t, family)
				load(t, family, variant, "")
				established := n.dial()
				if established == nil || !echoes(established) {
					t.Fatalf("connect through the iptables mode: %v", n.failure())
				}
				defer established.Close()
				run(t, nftablesMode[family], "nft", "-f", "-")
				stop := n.connectRepeatedly(2)
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
				if !echoes(established) {
					t.Error("got no echo on the established connection after the removal")
				}

				run(t, "", "nft", "delete", "table", family.String(), "kube-proxy")
				if conn := n.dial(); conn != nil {
					t.Error("got a connection without any rules, want none")
				}
			})
		}
	}
}

// node is a namespace with an echo server as endpoint and with clients.
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
		// nodad makes the address usable immediately. The kernel adds its
		// local route some time later.
		run(t, "", "ip", "addr", "add", host+"/128", "dev", "lo", "nodad")
		for run(t, "", "ip", "-6", "route", "show", "table", "local", host) == "" {
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

// dial connects to the Service from the calling thread's namespace. It
// returns nil after a failure.
func (n *node) dial() net.Conn {
	// Only a lost packet delays a connection, for a second or more.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
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

// connectRepeatedly starts clients that connect repeatedly until stop is
// called.
func (n *node) connectRepeatedly(clients int) (stop func()) {
	var stopped atomic.Bool
	var wait sync.WaitGroup
	for range clients {
		wait.Go(func() {
			runtime.LockOSThread() // without unlock: the thread ends with the client
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
					err := errors.New("no echo")
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

// echoes reports whether the other end echoes a message.
func echoes(conn net.Conn) bool {
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	sent, got := []byte("hello"), make([]byte, 5)
	if _, err := conn.Write(sent); err != nil {
		return false
	}
	_, err := io.ReadFull(conn, got)
	return err == nil && string(got) == string(sent)
}
