package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
)

// TestTableTaken shows another program that owns the tables, so that the
// kernel refuses the subject's changes. The subject counts the failures, and
// writes all rules after the program has ended.
func TestTableTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.createService("web", "a1")
	p := w.subject()
	p.startSynced()
	web.servedBy("a1")
	const failures = "kubeproxy_sync_proxy_rules_nftables_sync_failures_total"
	if n := p.metric(failures); n != 0 {
		t.Errorf("%s: got %g, want 0", failures, n)
	}
	owner := w.takeTables()
	web.setEndpoints("b1")
	p.eventually(failures, func() error {
		if n := p.metric(failures); n < 2 {
			return fmt.Errorf("got %g, want one for each family", n)
		}
		return nil
	})
	p.awaitLog("ailed")
	w.silent(w.pods["a1"].Namespace, web.clusterIPs())
	if n := p.metric("nftproxy_refusals_total"); n != 0 {
		t.Errorf("nftproxy_refusals_total: got %g, want 0", n)
	}

	w.must(owner.Close())
	web.servedBy("b1")
	p.awaitHealth()
}

// takeTables replaces the tables kube-proxy of node1 with empty ones that a
// program owns. Close ends the program, and the kernel removes the tables.
func (w *world) takeTables() io.Closer {
	w.t.Helper()
	cmd := w.Node1.Command(context.Background(), "nft", "--interactive")
	in, err := cmd.StdinPipe()
	w.must(err)
	log, err := os.Create(filepath.Join(w.t.TempDir(), "log"))
	w.must(err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	w.must(cmd.Start())
	owner := &session{cmd, in}
	w.t.Cleanup(func() { _ = owner.Close() }) // an error after an earlier Close
	for _, family := range []string{"ip", "ip6"} {
		_, err := fmt.Fprintf(in, "delete table %s kube-proxy; add table %[1]s kube-proxy { flags owner; }\n", family)
		w.must(err)
	}
	eventually(w.t, "owner of the tables", func() error {
		for _, family := range []string{"ip", "ip6"} {
			out, err := w.Node1.Command(w.ctx(), "nft", "list", "table", family, "kube-proxy").CombinedOutput()
			if !bytes.Contains(out, []byte("flags owner")) {
				text, _ := os.ReadFile(log.Name())
				return fmt.Errorf("%s: %v: %s, %s", family, err, out, text)
			}
		}
		return nil
	})
	return owner
}

// session is a program that ends with its input.
type session struct {
	cmd *lab.Cmd
	in  io.Closer
}

func (s *session) Close() error {
	if err := s.in.Close(); err != nil {
		return err
	}
	return s.cmd.Wait()
}
