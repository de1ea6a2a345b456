package leftovers

import (
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

func TestRemoveInterfaceAndSets(t *testing.T) {
	newNamespace(t)
	run(t, "", "ip", "link", "add", "kube-ipvs0", "type", "bridge") // some kernels have no dummy interfaces
	run(t, "", "ip", "link", "add", "kube-bridge", "type", "bridge")
	run(t, `create KUBE-CLUSTER-IP hash:ip,port
add KUBE-CLUSTER-IP 10.96.0.1,6:443
create KUBE-6-LOAD-BALANCER-SOURCE-CID hash:ip,port,net family inet6
create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
create KUBE-LOOP-BACK hash:ip,port,ip
create KUBE-EXTERNAL-IP hash:ip,port
create KUBE-ROUTER-PODS hash:ip
create others hash:ip
`, "ipset", "restore")
	for _, variant := range variants {
		iptables(t, nft.IPv4, variant, "-restore", `*nat
:KUBE-SERVICES - [0:0]
:KUBE-LOAD-BALANCER - [0:0]
:DOCKER - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT
-A KUBE-SERVICES -m set --match-set KUBE-LOOP-BACK dst,dst,src -j KUBE-LOAD-BALANCER
-A DOCKER -m set --match-set KUBE-EXTERNAL-IP dst,dst -j ACCEPT
COMMIT
`)
	}
	report := remove(t)
	sets := strings.Fields(run(t, "", "ipset", "list", "-n"))
	if slices.Sort(sets); !slices.Equal(sets, []string{"KUBE-EXTERNAL-IP", "KUBE-ROUTER-PODS", "others"}) {
		t.Errorf("got sets %q, want only sets of other programs; report %+v", sets, report)
	}
	links := run(t, "", "ip", "link")
	if strings.Contains(links, "kube-ipvs0") || !strings.Contains(links, "kube-bridge") {
		t.Errorf("got interfaces\n%s\nwant kube-bridge and no kube-ipvs0", links)
	}
	for _, want := range []string{
		"interface kube-ipvs0", "IP set KUBE-CLUSTER-IP",
		"table ip nat: 2 rules and 2 chains", "legacy table ip nat: 2 rules and 2 chains",
	} {
		if !slices.Contains(report.removed, want) {
			t.Errorf("got removed %q, want %q among them", report.removed, want)
		}
	}
	if len(report.kept) != 1 || !strings.Contains(report.kept[0], "KUBE-EXTERNAL-IP") {
		t.Errorf("got kept %q, want KUBE-EXTERNAL-IP", report.kept)
	}
	if again := remove(t); again.removed != nil {
		t.Errorf("got report %+v of the second removal, want nothing removed", again)
	}
}

// The kernel frees a rule, and its use of a set, some time after its
// deletion.
func TestRemoveWaitsForSets(t *testing.T) {
	newNamespace(t)
	run(t, "create KUBE-CLUSTER-IP hash:ip,port", "ipset", "restore")
	iptables(t, nft.IPv4, "legacy", "", "", "-A", "INPUT", "-m", "set", "--match-set", "KUBE-CLUSTER-IP", "dst,dst")
	other := exec.Command("sh", "-c", "sleep 0.2; iptables-legacy -F INPUT")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	report := remove(t)
	if err := other.Wait(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(report.removed, []string{"IP set KUBE-CLUSTER-IP"}) {
		t.Errorf("got report %+v, want KUBE-CLUSTER-IP removed", report)
	}
}

func TestLeftoverServers(t *testing.T) {
	newNamespace(t)
	run(t, "", "ip", "link", "add", "kube-ipvs0", "type", "bridge")
	run(t, "", "ip", "addr", "add", "10.96.0.1/32", "dev", "kube-ipvs0")
	run(t, "", "ip", "addr", "add", "fd00:96::1/128", "dev", "kube-ipvs0")
	run(t, `create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
add KUBE-NODE-PORT-TCP 30080
create KUBE-6-NODE-PORT-UDP bitmap:port range 0-65535
add KUBE-6-NODE-PORT-UDP 30053
create KUBE-NODE-PORT-SCTP-HASH hash:ip,port
add KUBE-NODE-PORT-SCTP-HASH 172.30.0.11,132:30099
create KUBE-HEALTH-CHECK-NODE-PORT bitmap:port range 0-65535
add KUBE-HEALTH-CHECK-NODE-PORT 31000
`, "ipset", "restore")
	link, err := netlink.LinkByName(ipvsInterface)
	if err != nil {
		t.Fatal(err)
	}
	leftovers, err := findLeftoverServers(link)
	if err != nil {
		t.Fatal(err)
	}
	const tcp, udp, sctp = unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP
	for _, c := range []struct {
		addr     string
		protocol uint16
		port     uint16
		want     bool
	}{
		{"10.96.0.1", tcp, 443, true},
		{"fd00:96::1", udp, 53, true},
		{"172.30.0.11", tcp, 30080, true},
		{"fd00:30::11", udp, 30053, true},
		{"172.30.0.11", sctp, 30099, true},
		{"172.30.0.11", udp, 30080, false},
		{"172.30.0.11", tcp, 31000, false},
		{"192.0.2.1", tcp, 443, false},
	} {
		s := virtualServer{addr: netip.MustParseAddr(c.addr), protocol: c.protocol, port: c.port}
		if got := leftovers.contains(s); got != c.want {
			t.Errorf("%s: got leftover %v, want %v", s, got, c.want)
		}
	}
	if leftovers.contains(virtualServer{mark: 1, addr: netip.MustParseAddr("10.96.0.1")}) {
		t.Error("got a virtual server with a mark as a leftover")
	}
}

func TestServerRoundTrip(t *testing.T) {
	for _, s := range []virtualServer{
		{protocol: unix.IPPROTO_TCP, addr: netip.MustParseAddr("10.96.0.1"), port: 443},
		{protocol: unix.IPPROTO_UDP, addr: netip.MustParseAddr("fd00:96::1"), port: 53},
	} {
		header := nl.Genlmsg{Command: ipvsGetService, Version: ipvsVersion}
		msg := append(header.Serialize(), encodeServer(s).Serialize()...)
		if got := decodeServer(msg); got != s {
			t.Errorf("got %+v, want %s", got, s)
		}
	}
}

// Kernels with IPVS run this test under qemu.
func TestRemoveServers(t *testing.T) {
	newNamespace(t)
	if _, err := os.Stat("/proc/net/ip_vs"); err != nil {
		t.Skip("the kernel has no IPVS; make test-kernels runs this test")
	}
	run(t, "", "ip", "link", "add", "kube-ipvs0", "type", "dummy")
	run(t, "", "ip", "addr", "add", "10.96.0.1/32", "dev", "kube-ipvs0")
	run(t, "", "ip", "addr", "add", "fd00:96::1/128", "dev", "kube-ipvs0", "nodad")
	run(t, "create KUBE-NODE-PORT-TCP bitmap:port range 0-65535\nadd KUBE-NODE-PORT-TCP 30080\n", "ipset", "restore")
	const others = `-A -f 1 -s rr
-A -t 192.0.2.1:443 -s rr
-a -t 192.0.2.1:443 -r 10.0.0.1:443 -m -w 2
-A -u 172.30.0.11:30080 -s rr -p 300
`
	run(t, others+`-A -t 10.96.0.1:443 -s rr
-a -t 10.96.0.1:443 -r 172.30.0.11:6443 -m -w 1
-A -u 10.96.0.1:53 -s rr -p 10800
-A -t [fd00:96::1]:443 -s rr
-a -t [fd00:96::1]:443 -r [fd00:30::11]:6443 -m -w 1
-A -t 172.30.0.11:30080 -s rr
`, "ipvsadm", "-R")
	report := remove(t)
	if got, want := sortedLines(run(t, "", "ipvsadm", "-S", "-n")), sortedLines(others); !slices.Equal(got, want) {
		t.Errorf("got virtual servers %q, want the servers of other programs %q", got, want)
	}
	want := []string{"IPVS: 4 virtual servers", "interface kube-ipvs0", "IP set KUBE-NODE-PORT-TCP"}
	for _, removed := range want {
		if !slices.Contains(report.removed, removed) {
			t.Errorf("got removed %q, want %q among them", report.removed, removed)
		}
	}
}

func sortedLines(text string) []string {
	return slices.Sorted(strings.Lines(text))
}
