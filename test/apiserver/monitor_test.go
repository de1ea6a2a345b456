package apiserver

import (
	"context"
	"strings"
	"syscall"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// monitor records changes of a node's tables.
type monitor struct {
	w   *world
	log *labtest.Log
	cmd *lab.Cmd
}

// monitor starts to record.
func (w *world) monitor(node *lab.Node) *monitor {
	w.t.Helper()
	m := &monitor{w: w, log: new(labtest.Log), cmd: node.Command(context.Background(), "nft", "monitor")}
	m.cmd.Stdout, m.cmd.Stderr = m.log, m.log
	w.must(m.cmd.Start())
	w.t.Cleanup(m.stop)
	return m
}

func (m *monitor) stop() {
	if m.cmd == nil {
		return
	}
	m.w.must(m.cmd.Process.Signal(syscall.SIGKILL))
	_ = m.cmd.Wait() // it was killed
	m.cmd = nil
}

// written returns the changes since the last call.
func (m *monitor) written() string {
	m.w.t.Helper()
	defer m.log.Restart()
	return m.log.Current()
}

// notWritten checks that no row of the Service was written. kube-proxy
// sometimes rewrites all rules, so only the product is checked.
func (m *monitor) notWritten(s *service) {
	m.w.t.Helper()
	m.stop()
	text := m.log.String()
	if text == "" {
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
