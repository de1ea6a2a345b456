package proxier

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// familyGaps reports each family of the node without a CIDR in the
// configuration.
func TestFamilyGaps(t *testing.T) {
	ipv4, ipv6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	cidr4, cidr6 := netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")
	for _, tt := range []struct {
		cluster, nodePorts []netip.Prefix
		ips                []netip.Addr
		want               int
	}{
		{nil, nil, nil, 1},
		{[]netip.Prefix{cidr4}, nil, []netip.Addr{ipv4}, 0},
		{[]netip.Prefix{cidr4}, nil, []netip.Addr{ipv4, ipv6}, 1},
		{[]netip.Prefix{cidr4, cidr6}, []netip.Prefix{cidr6}, []netip.Addr{ipv4, ipv6}, 1},
		{[]netip.Prefix{cidr6}, []netip.Prefix{cidr6}, []netip.Addr{ipv4}, 2},
	} {
		c := Config{Rules: ruleset.Config{
			DetectLocal:       ruleset.LocalDetection{Mode: ruleset.DetectLocalClusterCIDR, ClusterCIDRs: tt.cluster},
			NodePortAddresses: ruleset.NodePortAddresses{CIDRs: tt.nodePorts},
		}}
		if got := c.familyGaps(&cluster.Node{IPs: tt.ips}); len(got) != tt.want {
			t.Errorf("%v: got %q, want %d gaps", tt, got, tt.want)
		}
	}
	byNode := Config{Rules: ruleset.Config{DetectLocal: ruleset.LocalDetection{Mode: ruleset.DetectLocalNodeCIDR}}}
	node := &cluster.Node{IPs: []netip.Addr{ipv4, ipv6}, PodCIDRs: []netip.Prefix{cidr6}}
	if got := byNode.familyGaps(node); len(got) != 1 {
		t.Errorf("pod CIDRs of one family: got %q, want 1 gap", got)
	}
}

// If the Node object is deleted, or has no address or pod CIDR of a family, the
// tracker keeps the known ones of the family. Configured addresses have
// priority.
func TestNodeObjects(t *testing.T) {
	tr := newNodeTracker(&Config{NodeName: "n"})
	object := func(ips, podCIDRs []string) *corev1.Node {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{PodCIDRs: podCIDRs},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n"}}},
		}
		for _, ip := range ips {
			n.Status.Addresses = append(n.Status.Addresses,
				corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
		}
		return n
	}
	full := object([]string{"192.0.2.1", "2001:db8::1"}, []string{"10.244.1.0/24", "fd00:244::/64"})
	full.Labels = map[string]string{corev1.LabelTopologyZone: "z"}
	if tr.eligible.Load() {
		t.Error("without a Node object: got eligible")
	}
	tr.setObject(full)
	known := *tr.current()
	if len(known.IPs) != 2 || len(known.PodCIDRs) != 2 || known.Zone != "z" || !tr.eligible.Load() {
		t.Errorf("got %+v, eligible %v; want 2 IPs, 2 pod CIDRs, zone z, eligible", known, tr.eligible.Load())
	}
	if tr.setObject(nil) || tr.eligible.Load() {
		t.Error("deleted Node object: got a change or eligible, want neither")
	}
	known.Zone = ""
	for _, tt := range []struct {
		name          string
		ips, podCIDRs []string
		want          cluster.Node
	}{
		{"no addresses", nil, nil, known},
		{"no IPv6 address", []string{"192.0.2.1"}, []string{"10.244.1.0/24"}, known},
		{"another IPv6 address, no IPv4 address", []string{"2001:db8::2"}, []string{"fd00:245::/64"}, cluster.Node{
			Name: "n", IPs: tabletest.Addrs("192.0.2.1", "2001:db8::2"),
			PodCIDRs: tabletest.Prefixes("10.244.1.0/24", "fd00:245::/64"),
		}},
	} {
		tr.setObject(object(tt.ips, tt.podCIDRs))
		if got := tr.current(); !got.Equal(&tt.want) {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
	configured := newNodeTracker(&Config{NodeName: "n", NodeIPs: tabletest.Addrs("192.0.2.9")})
	configured.setObject(full)
	if got, want := configured.current().IPs, tabletest.Addrs("192.0.2.9", "2001:db8::1"); !slices.Equal(got, want) {
		t.Errorf("configured address: got %v, want %v", got, want)
	}
}
