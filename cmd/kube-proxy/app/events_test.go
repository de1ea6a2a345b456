package app

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/proxier"
)

func TestReferences(t *testing.T) {
	for kind, version := range map[string]string{"Service": "v1", "EndpointSlice": "discovery.k8s.io/v1"} {
		got := referenceOf(proxier.Event{Kind: kind, Namespace: "default", Name: "web", UID: "u"})
		want := corev1.ObjectReference{APIVersion: version, Kind: kind, Namespace: "default", Name: "web", UID: "u"}
		if *got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, tt := range []struct {
		in   string
		n    int
		want string
	}{
		{"short", 10, "short"}, {"exact", 5, "exact"}, {"longer", 4, "long"}, {"aé", 2, "a"},
		{strings.Repeat("x", 2000), maxNote, strings.Repeat("x", 1024)},
	} {
		if got := cut(tt.in, tt.n); got != tt.want {
			t.Errorf("cut(%q, %d) = %q, want %q", tt.in, tt.n, got, tt.want)
		}
	}
}
