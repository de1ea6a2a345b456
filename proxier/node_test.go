package proxier

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

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
		c := Config{DetectLocal: ruleset.LocalDetection{Mode: ruleset.DetectLocalClusterCIDR, ClusterCIDRs: tt.cluster}, NodePortAddresses: ruleset.NodePortAddresses{CIDRs: tt.nodePorts}}
		if got := c.familyGaps(&cluster.Node{IPs: tt.ips}); len(got) != tt.want {
			t.Errorf("%v: got %q, want %d", tt, got, tt.want)
		}
	}
	byNode := Config{DetectLocal: ruleset.LocalDetection{Mode: ruleset.DetectLocalNodeCIDR}}
	if got := byNode.familyGaps(&cluster.Node{IPs: []netip.Addr{ipv4, ipv6}, PodCIDRs: []netip.Prefix{cidr6}}); len(got) != 1 {
		t.Errorf("pod CIDRs of one family: got %q", got)
	}
}

// What a Node object that goes, or has nothing to say yet, leaves in force.
func TestNodeObjects(t *testing.T) {
	tr := newNodeTracker(&Config{NodeName: "n"})
	full := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelTopologyZone: "z"}},
		Spec:       corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: "n"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeExternalIP, Address: "2001:db8::1"},
		}},
	}
	if tr.eligible.Load() {
		t.Error("eligible without a Node object")
	}
	tr.setObject(full)
	known := *tr.current()
	if len(known.IPs) != 2 || len(known.PodCIDRs) != 1 || known.Zone != "z" || !tr.eligible.Load() {
		t.Errorf("got %+v", known)
	}
	if tr.setObject(nil) != nil || tr.eligible.Load() {
		t.Error("a Node object that is gone changes something, or leaves the node eligible")
	}
	tr.setObject(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	if now := tr.current(); !slices.Equal(now.IPs, known.IPs) || !slices.Equal(now.PodCIDRs, known.PodCIDRs) || now.Zone != "" {
		t.Errorf("a Node object without addresses makes it %+v", now)
	}
	given := newNodeTracker(&Config{NodeName: "n", NodeIPs: []netip.Addr{netip.MustParseAddr("192.0.2.9")}})
	given.setObject(full)
	if want := []netip.Addr{netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8::1")}; !slices.Equal(given.current().IPs, want) {
		t.Errorf("with a given address: %v, want %v", given.current().IPs, want)
	}
}
