// Package labtest creates labs in tests. An error of package lab ends the test.
// The lab is closed when the test ends.
package labtest

import (
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
)

// New creates a lab without names.
func New(t testing.TB) *lab.Lab {
	t.Helper()
	return NewWith(t, lab.Config{})
}

// NewWith creates a lab.
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

// AddPod adds a pod with the next free addresses of the node.
func AddPod(t testing.TB, node *lab.Node, name string) *lab.Pod {
	t.Helper()
	return AddPodWith(t, node, lab.PodConfig{Name: name})
}

// AddPodWith adds a pod.
func AddPodWith(t testing.TB, node *lab.Node, config lab.PodConfig) *lab.Pod {
	t.Helper()
	pod, err := node.AddPodWith(config)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// Serve starts TCP, UDP and SCTP servers at a port of each namespace.
func Serve(t testing.TB, port uint16, namespaces ...*lab.Namespace) {
	t.Helper()
	for _, ns := range namespaces {
		for _, serve := range []func(uint16) (*lab.Server, error){ns.ServeTCP, ns.ServeUDP, ns.ServeSCTP} {
			if _, err := serve(port); err != nil {
				t.Fatal(err)
			}
		}
	}
}
