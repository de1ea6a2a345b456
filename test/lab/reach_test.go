package lab_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// lostTimeout is the timeout of a probe that should be lost.
const lostTimeout = 400 * time.Millisecond

const port = 8080

func protocols() []string { return []string{"tcp", "udp"} }

// probe makes an attempt with the default options.
func probe(t *testing.T, from *lab.Namespace, protocol string, to netip.AddrPort) lab.Result {
	t.Helper()
	return lab.Probe(t.Context(), from, protocol, to, lab.ProbeOptions{})
}

// expect makes an attempt and checks its outcome.
func expect(t *testing.T, want lab.Outcome, from *lab.Namespace, protocol string, to netip.AddrPort) {
	t.Helper()
	var options lab.ProbeOptions
	if want == lab.TimedOut {
		options.Timeout = lostTimeout
	}
	if got := lab.Probe(t.Context(), from, protocol, to, options); got.Outcome != want {
		t.Errorf("%s %s to %s: got %v, want %v", protocol, from.Name, to, got, want)
	}
}

// attempt is a probe with its expected outcome.
type attempt struct {
	want     lab.Outcome
	from     *lab.Namespace
	protocol string
	to       netip.AddrPort
}

// expectAll makes all attempts concurrently.
func expectAll(t *testing.T, attempts []attempt) {
	t.Helper()
	var done sync.WaitGroup
	for _, a := range attempts {
		done.Go(func() { expect(t, a.want, a.from, a.protocol, a.to) })
	}
	done.Wait()
}

func TestReachability(t *testing.T) {
	l := labtest.New(t)
	all := []*lab.Namespace{
		l.Client, l.Node1.Namespace, l.Node2.Namespace,
		labtest.AddPod(t, l.Node1, "routed-1").Namespace,
		labtest.AddPod(t, l.Node1, "routed-2").Namespace,
		labtest.AddPod(t, l.Node2, "routed-3").Namespace,
		labtest.AddPodWith(t, l.Node1, lab.PodConfig{Name: "bridged-1", Bridge: "cbr0"}).Namespace,
		labtest.AddPodWith(t, l.Node1, lab.PodConfig{Name: "bridged-2", Bridge: "cbr0"}).Namespace,
		labtest.AddPodWith(t, l.Node2, lab.PodConfig{Name: "bridged-3", Bridge: "cbr0"}).Namespace,
	}
	labtest.Serve(t, port, all...)
	for _, from := range all {
		for _, to := range all {
			for i, addr := range to.Addrs() {
				for _, protocol := range append(protocols(), "sctp") {
					got := probe(t, from, protocol, netip.AddrPortFrom(addr, port))
					if got.Outcome != lab.Answered || got.Answer.Server != to.Name ||
						got.Answer.Source.Addr() != from.Addrs()[i] {
						t.Errorf("%s %s to %s (%s): got %v", protocol, from.Name, to.Name, addr, got)
					}
				}
			}
		}
	}
}

func TestRefused(t *testing.T) {
	l := labtest.New(t)
	pod := labtest.AddPod(t, l.Node1, "pod")
	for _, from := range []*lab.Namespace{l.Client, l.Node1.Namespace, l.Node2.Namespace, pod.Namespace} {
		for _, to := range []*lab.Namespace{l.Node1.Namespace, pod.Namespace} {
			for _, addr := range to.Addrs() {
				for _, protocol := range protocols() {
					expect(t, lab.Refused, from, protocol, netip.AddrPortFrom(addr, port))
				}
			}
		}
	}
}

// The kernel's default limits on ICMP errors would suppress most refusals.
func TestICMPErrorsUnlimited(t *testing.T) {
	l := labtest.New(t)
	for _, addr := range l.Node1.Addrs() {
		for range 100 {
			expect(t, lab.Refused, l.Client, "udp", netip.AddrPortFrom(addr, port))
		}
	}
}

func TestTimedOut(t *testing.T) {
	l := labtest.New(t)
	pod, lost := labtest.AddPod(t, l.Node1, "pod"), labtest.AddPod(t, l.Node2, "lost")
	for _, addr := range lost.Addrs() {
		if err := l.Node2.Blackhole(netip.PrefixFrom(addr, addr.BitLen())); err != nil {
			t.Fatal(err)
		}
	}
	unanswered := append(lost.Addrs(),
		netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:96::10"), // no such Service
		netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10"), // no such load balancer
		netip.MustParseAddr("10.244.1.200"), netip.MustParseAddr("fd00:244:1::c8")) // no such pod
	nowhere := []netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8:ffff::1")}
	var attempts []attempt
	add := func(addrs []netip.Addr, senders ...*lab.Namespace) {
		for _, addr := range addrs {
			for _, from := range senders {
				for _, protocol := range protocols() {
					attempts = append(attempts, attempt{lab.TimedOut, from, protocol, netip.AddrPortFrom(addr, port)})
				}
			}
		}
	}
	add(unanswered, pod.Namespace, l.Node1.Namespace, l.Client)
	add(nowhere, pod.Namespace, l.Node1.Namespace) // for the client see TestUnreachable
	expectAll(t, attempts)
}

func TestUnreachable(t *testing.T) {
	l := labtest.New(t)
	for i, noRoute := range []string{"203.0.113.1", "2001:db8:ffff::1"} {
		prefix := lab.ServiceRanges()[i]
		destination := &net.IPNet{IP: prefix.Addr().AsSlice(),
			Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
		err := l.Node1.Do(func() error {
			return netlink.RouteReplace(&netlink.Route{Dst: destination, Type: unix.RTN_UNREACHABLE})
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, protocol := range protocols() {
			expect(t, lab.Unreachable, l.Client, protocol, netip.AddrPortFrom(prefix.Addr().Next(), port))
			expect(t, lab.Unreachable, l.Client, protocol, netip.AddrPortFrom(netip.MustParseAddr(noRoute), port))
		}
	}
}

func TestFailed(t *testing.T) {
	l := labtest.New(t)
	for _, protocol := range protocols() {
		foreign := lab.ProbeOptions{Local: netip.MustParseAddrPort("10.1.2.3:4000")}
		got := lab.Probe(t.Context(), l.Client, protocol, netip.AddrPortFrom(l.Node1.IPv4, port), foreign)
		if got.Outcome != lab.Failed || got.Err == nil {
			t.Errorf("%s from a foreign address: got %v, want failed", protocol, got)
		}
	}
}

func TestServiceRoutes(t *testing.T) {
	l := labtest.New(t)
	labtest.Serve(t, port, l.Node1.Namespace)
	for _, prefix := range slices.Concat(lab.ServiceRanges(), lab.ExternalRanges()) {
		addr := prefix.Addr().Next()
		if err := l.Node1.AddAddr(netip.PrefixFrom(addr, addr.BitLen())); err != nil {
			t.Fatal(err)
		}
		for _, protocol := range protocols() {
			expect(t, lab.Answered, l.Client, protocol, netip.AddrPortFrom(addr, port))
			expect(t, lab.TimedOut, l.Node2.Namespace, protocol, netip.AddrPortFrom(addr, port))
		}
	}
}

// A node that forwards a packet back to its link may send the sender a
// redirect. The lab's hosts must ignore it.
func TestRedirectsIgnored(t *testing.T) {
	l := labtest.New(t)
	far := labtest.AddPod(t, l.Node2, "far")
	near := labtest.AddPodWith(t, l.Node1, lab.PodConfig{Name: "near", Bridge: "cbr0"})
	beside := labtest.AddPodWith(t, l.Node1, lab.PodConfig{Name: "beside", Bridge: "cbr0"})
	labtest.Serve(t, port, far.Namespace, beside.Namespace, l.Node2.Namespace)
	for i, addr := range far.Addrs() {
		if err := l.Client.ReplaceRoute(netip.PrefixFrom(addr, addr.BitLen()), l.Node1.Addrs()[i]); err != nil {
			t.Fatal(err)
		}
	}
	// The kernel follows a redirect at once if it knows the neighbour.
	for _, addr := range l.Node2.Addrs() {
		expect(t, lab.Answered, l.Client, "udp", netip.AddrPortFrom(addr, port))
	}
	for _, path := range []struct{ from, to *lab.Namespace }{
		{l.Client, far.Namespace}, {near.Namespace, beside.Namespace},
	} {
		for _, addr := range path.to.Addrs() {
			to := netip.AddrPortFrom(addr, port)
			for range 4 {
				expect(t, lab.Answered, path.from, "udp", to)
				time.Sleep(50 * time.Millisecond) // redirects are rate-limited
			}
			if err := l.Node1.Blackhole(netip.PrefixFrom(addr, addr.BitLen())); err != nil {
				t.Fatal(err)
			}
			expect(t, lab.TimedOut, path.from, "udp", to)
		}
	}
}

// An answer must come from the destination of its request.
func TestExtraAddresses(t *testing.T) {
	l := labtest.New(t)
	labtest.Serve(t, port, l.Node1.Namespace)
	extra := []netip.Prefix{netip.MustParsePrefix("172.30.0.50/24"), netip.MustParsePrefix("fd00:30::50/64")}
	for _, addr := range extra {
		if err := l.Node1.AddAddr(addr); err != nil {
			t.Fatal(err)
		}
		for _, protocol := range protocols() {
			expect(t, lab.Answered, l.Client, protocol, netip.AddrPortFrom(addr.Addr(), port))
		}
	}
}

func TestExtraInterface(t *testing.T) {
	l := labtest.New(t)
	labtest.Serve(t, port, l.Node1.Namespace)
	addrs := []netip.Prefix{netip.MustParsePrefix("198.51.100.7/24"), netip.MustParsePrefix("fd00:51::7/64")}
	if err := l.Node1.AddInterface("wlan0", addrs...); err != nil {
		t.Fatal(err)
	}
	for i, addr := range addrs {
		if err := l.Client.ReplaceRoute(addr.Masked(), l.Node1.Addrs()[i]); err != nil {
			t.Fatal(err)
		}
		for _, protocol := range protocols() {
			expect(t, lab.Answered, l.Client, protocol, netip.AddrPortFrom(addr.Addr(), port))
		}
	}
	if err := l.Node1.RemoveInterface("wlan0"); err != nil {
		t.Fatal(err)
	}
	expect(t, lab.TimedOut, l.Client, "tcp", netip.AddrPortFrom(addrs[0].Addr(), port))
}

func BenchmarkLab(b *testing.B) {
	for b.Loop() {
		l := labtest.New(b)
		for i := range 4 {
			labtest.AddPod(b, l.Nodes()[i%2], fmt.Sprintf("pod-%d", i))
		}
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
