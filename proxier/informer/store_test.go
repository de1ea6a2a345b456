package informer

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// A store delivers changes, and only the differences of a new list.
func TestStore(t *testing.T) {
	var calls []string
	s := &store[cluster.ServiceName, *translate.Service, *corev1.Service]{
		kind:   services,
		set:    func(svc *translate.Service) { calls = append(calls, "set "+svc.Name.Name) },
		remove: func(name cluster.ServiceName) { calls = append(calls, "remove "+name.Name) },
	}
	service := func(name, version string) *corev1.Service {
		meta := metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: version}
		return &corev1.Service{ObjectMeta: meta}
	}
	translated := func(name, version string) any { return services.translated(service(name, version)) }
	for _, step := range []struct {
		what string
		do   func() error
		want []string
	}{
		{"first list", func() error {
			return s.Replace([]any{translated("a", "1"), translated("b", "2"), service("c", "3")}, "3")
		}, []string{"set a", "set b", "set c"}},
		{"added", func() error { return s.Add(service("d", "4")) }, []string{"set d"}},
		{"changed", func() error { return s.Update(service("a", "5")) }, []string{"set a"}},
		{"same version", func() error { return s.Update(service("a", "5")) }, nil},
		{"same version, different UID", func() error {
			other := service("a", "5")
			other.UID = "other"
			return s.Update(other)
		}, []string{"set a"}},
		{"first UID again", func() error { return s.Update(service("a", "5")) }, []string{"set a"}},
		{"deleted", func() error { return s.Delete(service("b", "6")) }, []string{"remove b"}},
		{"deleted twice", func() error { return s.Delete(service("b", "6")) }, nil},
		{"resync", s.Resync, []string{"set a", "set c", "set d"}},
		{"second list", func() error {
			return s.Replace([]any{translated("a", "5"), translated("c", "7"), translated("e", "8")}, "8")
		}, []string{"remove d", "set c", "set e"}},
		{"empty list", func() error { return s.Replace(nil, "9") }, []string{"remove a", "remove c", "remove e"}},
	} {
		calls = nil
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if slices.Sort(calls); !slices.Equal(calls, step.want) {
			t.Errorf("%s: got calls %q, want %q", step.what, calls, step.want)
		}
	}
	if err := s.Update(new(corev1.Pod)); err == nil || err.Error() != "*v1.Pod is not a Service" {
		t.Errorf("got error %v, want one of a Pod", err)
	}
}

func TestStoreWithoutObjects(t *testing.T) {
	s := &store[cluster.ServiceName, *translate.Service, *corev1.Service]{
		kind: services,
		set:  func(*translate.Service) {},
	}
	if s.hasSynced() {
		t.Error("got synced before the first list")
	}
	if err := s.Replace(nil, "1"); err != nil || !s.hasSynced() {
		t.Errorf("got error %v, synced %v after an empty list, want synced", err, s.hasSynced())
	}
	if err := s.Add(new(corev1.Service)); err != nil {
		t.Error(err)
	}
}
