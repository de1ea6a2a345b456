package translate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNodeEligible(t *testing.T) {
	now := metav1.Now()
	taint := func(key string) *corev1.Node {
		return &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "other"}, {Key: key}}}}
	}
	for what, tc := range map[string]struct {
		node *corev1.Node
		want bool
	}{
		"no node":             {nil, false},
		"a node":              {&corev1.Node{}, true},
		"being deleted":       {&corev1.Node{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}, false},
		"about to be deleted": {taint("ToBeDeletedByClusterAutoscaler"), false},
		"unschedulable":       {taint("node.kubernetes.io/unschedulable"), true},
	} {
		if got := NodeEligible(tc.node); got != tc.want {
			t.Errorf("%s: eligible: %v", what, got)
		}
	}
}
