// Package labtest makes labs in tests: what package lab returns as an error ends
// the test, and what was made is removed when the test ends.
package labtest

import (
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
)

// New makes a lab without names.
func New(t testing.TB) *lab.Lab {
	t.Helper()
	return NewWith(t, lab.Config{})
}

// NewWith makes a lab.
func NewWith(t testing.TB, config lab.Config) *lab.Lab {
	t.Helper()
	l, err := lab.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// AddPod attaches a pod with the next free addresses of the node.
func AddPod(t testing.TB, node *lab.Node, name string) *lab.Pod {
	t.Helper()
	return AddPodWith(t, node, lab.PodConfig{Name: name})
}

// AddPodWith attaches a pod.
func AddPodWith(t testing.TB, node *lab.Node, config lab.PodConfig) *lab.Pod {
	t.Helper()
	pod, err := node.AddPodWith(config)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// Serve starts a TCP and a UDP server on a port of each namespace.
func Serve(t testing.TB, port uint16, namespaces ...*lab.Namespace) {
	t.Helper()
	for _, ns := range namespaces {
		if _, err := ns.ServeTCP(port); err != nil {
			t.Fatal(err)
		}
		if _, err := ns.ServeUDP(port); err != nil {
			t.Fatal(err)
		}
	}
}
