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
		c := Config{
			DetectLocal:       ruleset.LocalDetection{Mode: ruleset.DetectLocalClusterCIDR, ClusterCIDRs: tt.cluster},
			NodePortAddresses: ruleset.NodePortAddresses{CIDRs: tt.nodePorts},
		}
		if got := c.familyGaps(&cluster.Node{IPs: tt.ips}); len(got) != tt.want {
			t.Errorf("%v: got %q, want %d gaps", tt, got, tt.want)
		}
	}
	byNode := Config{DetectLocal: ruleset.LocalDetection{Mode: ruleset.DetectLocalNodeCIDR}}
	node := &cluster.Node{IPs: []netip.Addr{ipv4, ipv6}, PodCIDRs: []netip.Prefix{cidr6}}
	if got := byNode.familyGaps(node); len(got) != 1 {
		t.Errorf("pod CIDRs of one family: got %q, want 1 gap", got)
	}
}

// If the Node object is deleted, or has no addresses and pod CIDRs, the
// tracker keeps the known ones. Configured addresses have priority.
func TestNodeObjects(t *testing.T) {
	tr := newNodeTracker(&Config{NodeName: "n"})
	full := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelTopologyZone: "z"}},
		Spec:       corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: "n"},
			{Type: corev1.NodeInternalIP, Address: "192.0.2.1"},
			{Type: corev1.NodeExternalIP, Address: "2001:db8::1"},
		}},
	}
	if tr.eligible.Load() {
		t.Error("without a Node object: got eligible")
	}
	tr.setObject(full)
	known := *tr.current()
	if len(known.IPs) != 2 || len(known.PodCIDRs) != 1 || known.Zone != "z" || !tr.eligible.Load() {
		t.Errorf("got %+v, eligible %v; want 2 IPs, 1 pod CIDR, zone z, eligible", known, tr.eligible.Load())
	}
	if tr.setObject(nil) != nil || tr.eligible.Load() {
		t.Error("deleted Node object: got a change or eligible, want neither")
	}
	tr.setObject(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	want := known
	want.Zone = ""
	if got := tr.current(); !got.Equal(&want) {
		t.Errorf("Node object without addresses: got %+v, want %+v", got, want)
	}
	configured := newNodeTracker(&Config{NodeName: "n", NodeIPs: tabletest.Addrs("192.0.2.9")})
	configured.setObject(full)
	if got, want := configured.current().IPs, tabletest.Addrs("192.0.2.9", "2001:db8::1"); !slices.Equal(got, want) {
		t.Errorf("configured address: got %v, want %v", got, want)
	}
}
