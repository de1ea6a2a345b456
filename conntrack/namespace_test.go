package conntrack

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespace is a network namespace without a name. The kernel removes it when
// its last descriptor is closed.
type namespace struct {
	fd netns.NsHandle
}

// newNamespace makes a network namespace with its loopback interface up.
func newNamespace(t testing.TB) namespace {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	host, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	fd, err := netns.New()
	if err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	if err := netns.Set(host); err != nil {
		panic(err) // the thread is in the wrong namespace
	}
	t.Cleanup(func() { fd.Close() })
	ns := namespace{fd}
	ns.do(t, func() {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			t.Fatalf("set lo up: %v", err)
		}
	})
	return ns
}

// do runs f on a thread in the namespace.
func (ns namespace) do(t testing.TB, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	host, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	if err := netns.Set(ns.fd); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := netns.Set(host); err != nil {
			panic(err)
		}
	}()
	f()
}

// addAddr adds an address and waits until the kernel delivers packets to it
// locally. For IPv6, the local route follows a little later.
func (ns namespace) addAddr(t testing.TB, link string, addr netip.Addr, bits int) {
	t.Helper()
	ns.do(t, func() {
		l, err := netlink.LinkByName(link)
		if err != nil {
			t.Fatal(err)
		}
		ipNet := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(bits, addr.BitLen())}
		if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: ipNet, Flags: unix.IFA_F_NODAD}); err != nil {
			t.Fatalf("add %v: %v", addr, err)
		}
		for range 1000 {
			routes, err := netlink.RouteGet(addr.AsSlice())
			if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("%v does not become local", addr)
	})
}

func (ns namespace) open(t testing.TB) (c *Conn) {
	t.Helper()
	ns.do(t, func() {
		var err error
		if c, err = Open(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { c.Close() })
	return c
}

func (ns namespace) sysctl(t testing.TB, path, value string) {
	t.Helper()
	ns.do(t, func() {
		if err := os.WriteFile("/proc/sys/"+path, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	})
}

// IPS_SEEN_REPLY, IPS_ASSURED and IPS_CONFIRMED.
const statusAssured = 1<<1 | 1<<2 | 1<<3

const ctaTimeout = 7

// injector writes flows into the table, as conntrackd does.
type injector struct {
	*socket
}

func (ns namespace) injector(t testing.TB) injector {
	t.Helper()
	var s *socket
	ns.do(t, func() {
		var err error
		if s, err = openSocket(unix.NETLINK_NETFILTER, answerLen); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { s.close() })
	return injector{s}
}

// add adds flows, 128 at a time.
func (in injector) add(t testing.TB, flows ...Flow) {
	t.Helper()
	for len(flows) > 0 {
		n := min(len(flows), 128)
		if err := in.addSome(flows[:n]); err != nil {
			t.Fatalf("add flows: %v", err)
		}
		flows = flows[n:]
	}
}

func (in injector) addSome(flows []Flow) error {
	var b []byte
	for i, flow := range flows {
		flags := uint16(unix.NLM_F_REQUEST | unix.NLM_F_CREATE | unix.NLM_F_EXCL)
		if i == len(flows)-1 {
			flags |= unix.NLM_F_ACK
		}
		b = appendNew(b, flags, in.nextSeq(), flow)
	}
	if err := in.send(b); err != nil {
		return err
	}
	for {
		b, err := in.receive()
		if err != nil {
			return err
		}
		h, payload, _, err := nextMessage(b)
		if err == nil {
			err = messageError(payload)
		}
		if err != nil || h.Seq == in.seq {
			return err
		}
	}
}

func appendNew(b []byte, flags uint16, seq uint32, flow Flow) []byte {
	start := len(b)
	b = appendMessage(b, header{Type: messageNew, Flags: flags, Seq: seq}, flow.Family())
	b = appendFlow(b, flow)
	b = appendUint32(b, ctaTimeout, 3600)
	return endMessage(b, start)
}

// appendFlow appends the attributes of a flow, as the kernel writes them in a
// dump.
func appendFlow(b []byte, flow Flow) []byte {
	zones := [3]uint16{}
	zones[flow.Zone.Direction] = flow.Zone.ID
	b = appendTuple(b, ctaTupleOrig, flow.Protocol, flow.Original, zones[ZoneOriginal])
	b = appendTuple(b, ctaTupleReply, flow.Protocol, flow.Reply, zones[ZoneReply])
	if zones[ZoneBoth] != 0 {
		b = appendUint16(b, ctaZone, zones[ZoneBoth])
	}
	b = appendUint32(b, ctaStatus, flow.Status)
	b = appendUint32(b, ctaMark, flow.Mark)
	return appendUint32(b, ctaID, flow.ID)
}

// newFlow returns an assured flow that was translated to endpoint.
func newFlow(protocol uint8, client, frontend, endpoint string) Flow {
	src, dst := netip.MustParseAddrPort(client), netip.MustParseAddrPort(frontend)
	return Flow{
		Protocol: protocol,
		Original: Tuple{Src: src, Dst: dst},
		Reply:    Tuple{Src: netip.MustParseAddrPort(endpoint), Dst: src},
		Status:   statusAssured,
	}
}

func (f Flow) inZone(id uint16, direction ZoneDirection) Flow {
	f.Zone = Zone{ID: id, Direction: direction}
	return f
}

// list returns all flows of the table, without their IDs, which tests cannot
// know.
func list(t testing.TB, c *Conn) []Flow {
	t.Helper()
	var flows []Flow
	for flow, err := range c.Flows(Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		flow.ID = 0
		flows = append(flows, flow)
	}
	return flows
}

// find returns the one flow from a client, with its ID.
func find(t testing.TB, c *Conn, client netip.AddrPort) Flow {
	t.Helper()
	var found []Flow
	for flow, err := range c.Flows(Filter{Original: TupleFilter{Src: client.Addr(), SrcPort: client.Port()}}) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, flow)
	}
	if len(found) != 1 {
		t.Fatalf("%d flows from %v, want 1: %v", len(found), client, found)
	}
	return found[0]
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err.Error()
	}
	return unix.ByteSliceToString(u.Release[:])
}
