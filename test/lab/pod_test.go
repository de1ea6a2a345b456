package lab_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

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
