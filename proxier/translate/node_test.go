package translate

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNodeEligible(t *testing.T) {
	now := metav1.Now()
	taint := func(key string) *corev1.Node {
		return &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "other"}, {Key: key}}}}
	}
	for name, tt := range map[string]struct {
		node *corev1.Node
		want bool
	}{
		"no object":           {nil, false},
		"an object":           {&corev1.Node{}, true},
		"being deleted":       {&corev1.Node{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}, false},
		"about to be deleted": {taint("ToBeDeletedByClusterAutoscaler"), false},
		"unschedulable":       {taint("node.kubernetes.io/unschedulable"), true},
	} {
		if got := NodeEligible(tt.node); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

func TestNodeIPs(t *testing.T) {
	const internal, external = corev1.NodeInternalIP, corev1.NodeExternalIP
	for name, tt := range map[string]struct {
		addresses []corev1.NodeAddress
		want      []netip.Addr
	}{
		"none": {nil, nil},
		"an InternalIP has priority": {
			[]corev1.NodeAddress{{Type: external, Address: "192.0.2.1"}, {Type: internal, Address: "10.0.0.1"}},
			[]netip.Addr{addr("10.0.0.1")},
		},
		"the first of a family": {
			[]corev1.NodeAddress{{Type: internal, Address: "10.0.0.2"}, {Type: internal, Address: "10.0.0.1"}},
			[]netip.Addr{addr("10.0.0.2")},
		},
		"each family": {
			[]corev1.NodeAddress{{Type: external, Address: "2001:db8::1"}, {Type: internal, Address: "10.0.0.1"}},
			[]netip.Addr{addr("10.0.0.1"), addr("2001:db8::1")},
		},
		"other types": {[]corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "10.0.0.1"}}, nil},
	} {
		node := &corev1.Node{Status: corev1.NodeStatus{Addresses: tt.addresses}}
		if got := NodeIPs(node); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

func TestPodCIDRs(t *testing.T) {
	for name, tt := range map[string]struct {
		spec corev1.NodeSpec
		want string
	}{
		"podCIDRs":        {corev1.NodeSpec{PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.2.0.0/24"}}, "10.2.0.0/24"},
		"podCIDR":         {corev1.NodeSpec{PodCIDR: "10.1.0.0/24"}, "10.1.0.0/24"},
		"an invalid CIDR": {corev1.NodeSpec{PodCIDRs: []string{"x", "10.2.0.0/24"}}, "10.2.0.0/24"},
	} {
		got := PodCIDRs(&corev1.Node{Spec: tt.spec})
		if want := netip.MustParsePrefix(tt.want); len(got) != 1 || got[0] != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
