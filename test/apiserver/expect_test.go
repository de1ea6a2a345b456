package apiserver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/frontend"
)

// reaches waits until these pods and no others answer attempts from the
// namespace.
func (w *world) reaches(from *lab.Namespace, to []frontend.Frontend, pods string) {
	w.t.Helper()
	for _, d := range to {
		eventually(w.t, fmt.Sprintf("%s -> %v", from.Name, d), func() error {
			return w.answers(from, d, strings.Fields(pods))
		})
	}
}

// servedBy is like reaches, for the ClusterIPs from a pod of node1 and from
// node1, and for the NodePorts of node1 from the client.
func (s *service) servedBy(pods string) {
	s.w.t.Helper()
	s.w.reaches(s.w.pods["a1"].Namespace, s.clusterIPs(), pods)
	s.w.reaches(s.w.Node1.Namespace, s.clusterIPs(), pods)
	s.w.reaches(s.w.Client, s.nodePorts(), pods)
}

// answers makes attempts until all pods have answered, or returns an error.
func (w *world) answers(from *lab.Namespace, to frontend.Frontend, pods []string) error {
	seen := map[string]bool{}
	// The probability to miss one of four pods is (3/4)^160.
	least, most := 3*len(pods), 40*len(pods)
	for i := 0; i < most && (i < least || len(seen) < len(pods)); i++ {
		result := to.Probe(w.ctx(), from, lab.ProbeOptions{Timeout: shortly})
		if result.Outcome != lab.Answered {
			return fmt.Errorf("attempt %d: got %v", i+1, result)
		}
		if !slices.Contains(pods, result.Answer.Server) {
			return fmt.Errorf("got an answer of %s, want %v", result.Answer.Server, pods)
		}
		seen[result.Answer.Server] = true
	}
	if len(seen) < len(pods) {
		return fmt.Errorf("got answers of %v, want %v", seen, pods)
	}
	return nil
}

// unserved waits until the Service's addresses do not answer.
func (s *service) unserved() {
	s.w.t.Helper()
	s.w.silent(s.w.pods["a1"].Namespace, s.clusterIPs())
	s.w.silent(s.w.Client, s.nodePorts())
}

// silent waits until the destinations do not answer.
func (w *world) silent(from *lab.Namespace, to []frontend.Frontend) {
	w.t.Helper()
	for _, d := range to {
		eventually(w.t, fmt.Sprintf("%s -> %v", from.Name, d), func() error {
			result := d.Probe(w.ctx(), from, lab.ProbeOptions{Timeout: shortly})
			if result.Outcome == lab.Answered {
				return fmt.Errorf("got %v, want no answer", result)
			}
			return nil
		})
	}
}
