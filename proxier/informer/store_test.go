package informer

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// A store tells what becomes of objects, and of a new list only what is different.
func TestStore(t *testing.T) {
	var told []string
	s := &store[cluster.ServiceName, *translate.Service, *corev1.Service]{
		kind:   services,
		set:    func(svc *translate.Service) { told = append(told, "set "+svc.Name.Name) },
		remove: func(name cluster.ServiceName) { told = append(told, "remove "+name.Name) },
	}
	service := func(name, version string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: version}}
	}
	for _, step := range []struct {
		what string
		do   func() error
		want []string
	}{
		{"first list", func() error {
			return s.Replace([]any{services.translate(service("a", "1")), services.translate(service("b", "2")), service("c", "3")}, "3")
		}, []string{"set a", "set b", "set c"}},
		{"new", func() error { return s.Add(service("d", "4")) }, []string{"set d"}},
		{"changed", func() error { return s.Update(service("a", "5")) }, []string{"set a"}},
		{"the same version", func() error { return s.Update(service("a", "5")) }, nil},
		{"another of the same version", func() error {
			other := service("a", "5")
			other.UID = "other"
			return s.Update(other)
		}, []string{"set a"}},
		{"the first again", func() error { return s.Update(service("a", "5")) }, []string{"set a"}},
		{"deleted", func() error { return s.Delete(service("b", "6")) }, []string{"remove b"}},
		{"deleted twice", func() error { return s.Delete(service("b", "6")) }, nil},
		{"resync", s.Resync, []string{"set a", "set c", "set d"}},
		{"another list", func() error {
			return s.Replace([]any{services.translate(service("a", "5")), services.translate(service("c", "7")), services.translate(service("e", "8"))}, "8")
		}, []string{"remove d", "set c", "set e"}},
		{"no list", func() error { return s.Replace(nil, "9") }, []string{"remove a", "remove c", "remove e"}},
	} {
		told = nil
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if slices.Sort(told); !slices.Equal(told, step.want) {
			t.Errorf("%s: told %q, want %q", step.what, told, step.want)
		}
	}
	if err := s.Update(new(corev1.Pod)); err == nil || err.Error() != "*v1.Pod is no Service" {
		t.Errorf("a Pod: %v", err)
	}
}

func TestStoreWithoutObjects(t *testing.T) {
	s := &store[cluster.ServiceName, *translate.Service, *corev1.Service]{kind: services, set: func(*translate.Service) {}}
	if s.told() {
		t.Error("told before there was a list")
	}
	if err := s.Replace(nil, "1"); err != nil || !s.told() {
		t.Errorf("an empty list: %v, told %v", err, s.told())
	}
	if err := s.Add(new(corev1.Service)); err != nil {
		t.Error(err)
	}
}
