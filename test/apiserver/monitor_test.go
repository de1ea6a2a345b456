package apiserver

import (
	"context"
	"strings"
	"syscall"

	"github.com/nftproxy/nftproxy/test/lab"
)

// monitor sees what is written to the tables of a node.
type monitor struct {
	w   *world
	log *labtest.Log
	cmd *lab.Cmd
}

// monitor begins to look.
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

// written returns what was written since it was last asked.
func (m *monitor) written() string {
	m.w.t.Helper()
	defer m.log.Restart()
	return m.log.Current()
}

// leftAlone wants no row of the Service to have been written. kube-proxy writes all rules anew now and then, so this is for the
// product alone.
func (m *monitor) leftAlone(s *service) {
	m.w.t.Helper()
	m.stop()
	text := m.log.String()
	if text == "" {
		m.w.t.Error("nothing was written to the tables")
	}
	if subjectName() != product {
		return
	}
	for line := range strings.Lines(text) {
		for _, ip := range s.Spec.ClusterIPs {
			if strings.Contains(line, ip+" ") {
				m.w.t.Errorf("written without need: %s", line)
			}
		}
	}
}
