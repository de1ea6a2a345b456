package leftovers

import (
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// The clusterIPs and endpoints of the Service default/kubernetes in testdata.
var (
	vips      = map[nft.Family]string{nft.IPv4: "10.96.0.1:443", nft.IPv6: "[fd00:96::1]:443"}
	endpoints = map[nft.Family]string{nft.IPv4: "10.244.0.1", nft.IPv6: "fd00:244::1"}
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
	for _, variant := range []string{"nft", "legacy"} {
		for _, family := range families {
			if testing.Short() && (variant == "nft") == (family == nft.IPv4) {
				continue // on emulated machines, each variant has one family
			}
			t.Run(variant+" "+family.String(), func(t *testing.T) {
				t.Parallel()
				n := newNode(t, family)
				load(t, family, variant, fileOf(family, ""))
				established, result := lab.Open(t.Context(), n.Namespace.Namespace, "tcp", n.vip, lab.ProbeOptions{})
				if established == nil {
					t.Fatalf("connect through the iptables mode: %v", result)
				}
				defer established.Close()
				run(t, nftablesMode[family], "nft", "-f", "-")
				stop := n.connectRepeatedly(t, 2)
				for range rounds(5) {
					load(t, family, variant, fileOf(family, ""))
					n.await(t, 20)
					remove(t)
					n.await(t, 20)
				}
				stop()
				if result := established.Ask(t.Context()); result.Outcome != lab.Answered {
					t.Errorf("the established connection after the removal: %v", result)
				}
				run(t, "", "nft", "delete", "table", family.String(), "kube-proxy")
				if n.connect(t) == nil {
					t.Error("without any rules, the Service answers")
				}
			})
		}
	}
}

// node is a namespace with a server as endpoint and with clients. The test's
// thread is in the namespace.
type node struct {
	nstest.Namespace
	vip       netip.AddrPort
	connected atomic.Int64
}

func newNode(t *testing.T, family nft.Family) *node {
	t.Helper()
	n := &node{Namespace: nstest.New(t), vip: netip.MustParseAddrPort(vips[family])}
	runtime.LockOSThread() // without unlock: the thread ends with the test
	if err := unix.Setns(n.Fd(), unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	endpoint := netip.MustParseAddr(endpoints[family])
	n.AddAddr(t, "lo", endpoint, endpoint.BitLen())
	run(t, "", "ip", map[nft.Family]string{nft.IPv4: "-4", nft.IPv6: "-6"}[family],
		"route", "add", "default", "dev", "lo")
	if _, err := n.ServeTCP(6443); err != nil {
		t.Fatal(err)
	}
	return n
}

// connect makes a connection to the Service, and loses no packet.
func (n *node) connect(t *testing.T) error {
	return lab.ConnectOnce(t.Context(), n.Namespace.Namespace, "tcp", n.vip, lab.ProbeOptions{})
}

// connectRepeatedly starts clients that connect until stop is called, and that
// report failures.
func (n *node) connectRepeatedly(t *testing.T, clients int) (stop func()) {
	var stopped atomic.Bool
	var wait sync.WaitGroup
	for range clients {
		wait.Go(func() {
			for !stopped.Load() && !t.Failed() {
				if err := n.connect(t); err != nil {
					t.Errorf("after %d connections: %v", n.connected.Load(), err)
				}
				n.connected.Add(1)
			}
		})
	}
	return func() {
		stopped.Store(true)
		wait.Wait()
	}
}

// await waits until the clients have made more connections.
func (n *node) await(t *testing.T, more int64) {
	for end := n.connected.Load() + more; n.connected.Load() < end && !t.Failed(); {
		time.Sleep(time.Millisecond)
	}
}
