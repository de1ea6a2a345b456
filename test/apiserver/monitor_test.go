package apiserver

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/nftproxy/nftproxy/test/lab"
)

// monitor records changes of a node's tables.
type monitor struct {
	w       *world
	process *lab.Process
	seen    int // bytes of its log
}

// monitor starts to record.
func (w *world) monitor(node *lab.Node) *monitor {
	w.t.Helper()
	process, err := node.StartProcess(context.Background(), lab.ProcessConfig{
		Program: "nft", Args: []string{"monitor"}, Log: filepath.Join(w.t.TempDir(), "monitor"),
	})
	w.must(err)
	m := &monitor{w: w, process: process}
	w.t.Cleanup(m.stop)
	return m
}

func (m *monitor) stop() { m.process.End(syscall.SIGKILL) }

// written returns the changes since the last call.
func (m *monitor) written() string {
	text := m.process.Log()[m.seen:]
	m.seen += len(text)
	return text
}

// notWritten checks that no row of the Service was written. kube-proxy
// sometimes rewrites all rules, so only the product is checked.
func (m *monitor) notWritten(s *service) {
	m.w.t.Helper()
	m.stop()
	text := m.process.Log()
	if text == "" && !foreign() {
		m.w.t.Error("got no changes of the tables, want some")
	}
	if subjectName() != product {
		return
	}
	for line := range strings.Lines(text) {
		for _, ip := range s.Spec.ClusterIPs {
			if strings.Contains(line, ip+" ") {
				m.w.t.Errorf("unneeded change: %s", line)
			}
		}
	}
}
