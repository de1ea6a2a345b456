package lab_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

func TestPodAddresses(t *testing.T) {
	l := labtest.New(t)
	first, second := labtest.AddPod(t, l.Node1, "first"), labtest.AddPod(t, l.Node1, "second")
	third := labtest.AddPod(t, l.Node2, "third")
	for _, check := range []struct {
		pod  *lab.Pod
		want []string
	}{
		{first, []string{"10.244.1.2", "fd00:244:1::2"}},
		{second, []string{"10.244.1.3", "fd00:244:1::3"}},
		{third, []string{"10.244.2.2", "fd00:244:2::2"}},
	} {
		for i, want := range check.want {
			if got := check.pod.Addrs()[i]; got != netip.MustParseAddr(want) {
				t.Errorf("address of %s: got %s, want %s", check.pod.Name, got, want)
			}
		}
	}
	if err := first.Remove(); err != nil {
		t.Fatal(err)
	}
	if fourth := labtest.AddPod(t, l.Node1, "fourth"); fourth.IPv4 == first.IPv4 {
		t.Error("the next pod got the address of a removed one")
	}
}

func TestPodNames(t *testing.T) {
	l := labtest.New(t)
	labtest.AddPod(t, l.Node1, "pod")
	for _, name := range []string{"pod", "node1", "", "a b", "a.b"} {
		if _, err := l.Node2.AddPod(name); err == nil {
			t.Errorf("pod name %q was accepted, want an error", name)
		}
	}
}

// A new pod with the address of a removed one is reachable immediately.
func TestPodAddressTakenOver(t *testing.T) {
	for _, bridge := range []string{"", "cbr0"} {
		l := labtest.New(t)
		other := labtest.AddPodWith(t, l.Node1, lab.PodConfig{Name: "other", Bridge: bridge})
		old := labtest.AddPodWith(t, l.Node1, lab.PodConfig{Name: "old", Bridge: bridge})
		labtest.Serve(t, port, old.Namespace)
		all := []*lab.Namespace{l.Client, l.Node1.Namespace, l.Node2.Namespace, other.Namespace}
		each := func(want lab.Outcome) {
			t.Helper()
			var attempts []attempt
			for _, from := range all {
				for _, addr := range old.Addrs() {
					attempts = append(attempts, attempt{want, from, "udp", netip.AddrPortFrom(addr, port)})
				}
			}
			expectAll(t, attempts)
		}
		each(lab.Answered)
		if err := old.Remove(); err != nil {
			t.Fatal(err)
		}
		if err := old.Remove(); err == nil {
			t.Error("second removal of a pod succeeded, want an error")
		}
		each(lab.TimedOut)
		next := labtest.AddPodWith(t, l.Node1, lab.PodConfig{Name: "next", Bridge: bridge, IPv4: old.IPv4,
			IPv6: old.IPv6})
		labtest.Serve(t, port, next.Namespace)
		each(lab.Answered)
	}
}

func TestHostInterface(t *testing.T) {
	l := labtest.New(t)
	labtest.AddPodWith(t, l.Node1, lab.PodConfig{Name: "named", HostInterface: "cali123"})
	bridged := labtest.AddPodWith(t, l.Node1, lab.PodConfig{Name: "bridged", Bridge: "cbr0"})
	if !strings.HasPrefix(bridged.HostInterface, "veth") {
		t.Errorf("host interface: got %s, want a name with prefix veth", bridged.HostInterface)
	}
	links, err := netlink.NewHandleAt(netns.NsHandle(l.Node1.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer links.Close()
	var ports []string
	all, err := links.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	bridge := slices.IndexFunc(all, func(link netlink.Link) bool { return link.Attrs().Name == "cbr0" })
	if bridge < 0 || all[bridge].Type() != "bridge" {
		t.Fatalf("links of node1: got %v, want a bridge cbr0", all)
	}
	for _, link := range all {
		if link.Attrs().MasterIndex == all[bridge].Attrs().Index {
			ports = append(ports, link.Attrs().Name)
			if link.Attrs().HardwareAddr.String() == all[bridge].Attrs().HardwareAddr.String() {
				t.Error("the bridge has the hardware address of a port")
			}
		}
	}
	if !slices.Equal(ports, []string{bridged.HostInterface}) {
		t.Errorf("ports of the bridge: got %v, want %s", ports, bridged.HostInterface)
	}
	if !slices.ContainsFunc(all, func(link netlink.Link) bool { return link.Attrs().Name == "cali123" }) {
		t.Error("node1 has no interface cali123")
	}
}
