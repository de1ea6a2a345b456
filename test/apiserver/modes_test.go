package apiserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestFromIPTables takes over from kube-proxy's iptables mode under a steady stream of new connections. Its chains must be gone then, from wherever
// its iptables wrote them. kube-proxy's own nftables mode removes them before it has written its rules: connections fail.
func TestFromIPTables(t *testing.T) {
	t.Parallel()
	for _, variant := range []string{"nft", "legacy"} {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			steady := w.createService("steady", "a1 a2 b1")
			for i := range 20 {
				w.createService(fmt.Sprintf("other-%d", i), "a1 b2")
			}
			before := w.iptablesMode(variant)
			before.startSynced()
			steady.servedBy("a1 a2 b1")
			if w.leftovers(variant) == "" {
				t.Fatal("kube-proxy has written nothing by iptables")
			}
			w.run(w.Node1.Namespace, "iptables-"+variant, "--append", "INPUT", "--protocol", "tcp", "--destination-port", "9", "--jump", "DROP")
			stream := steady.startStream(t)
			stream.pass(100)
			before.kill()
			p := w.subject()
			if p.name == upstream { // it looks where the first iptables in PATH does, and nowhere else
				p.wrapper = before.wrapper
			}
			p.startSynced()
			w.awaitNoLeftovers(variant)
			stream.pass(200)
			if p.name == product {
				stream.mustNotFail()
			}
			steady.servedBy("a1 a2 b1")
			if rules := w.run(w.Node1.Namespace, "iptables-"+variant+"-save"); !strings.Contains(rules, "--dport 9 -j DROP") {
				t.Errorf("another one's rule is gone:\n%s", rules)
			}

			// And in the other direction: --cleanup.
			p.terminate()
			p.cleanUp()
			if tables := w.run(w.Node1.Namespace, "nft", "list", "tables"); strings.Contains(tables, "kube-proxy") {
				t.Errorf("tables after --cleanup: %s", tables)
			}
			before.startSynced()
			steady.servedBy("a1 a2 b1")
			before.kill()
			p.cleanUp()
			w.awaitNoLeftovers(variant)
			steady.unserved()
		})
	}
}

// iptablesMode returns kube-proxy in its iptables mode, with one of the two kinds of iptables.
func (w *world) iptablesMode(variant string) *proxy {
	w.t.Helper()
	// The programs by the names that kube-proxy runs.
	folder := w.t.TempDir()
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, part := range []string{"", "-save", "-restore"} {
			path, err := exec.LookPath(family + "-" + variant + part)
			w.must(err)
			w.must(os.Symlink(path, filepath.Join(folder, family+part)))
		}
	}
	p := w.proxy(upstream)
	p.flags = append(p.flags, "--proxy-mode=iptables")
	p.wrapper = []string{"env", "PATH=" + folder + ":" + os.Getenv("PATH")}
	return p
}

// leftovers lists the chains of kube-proxy's iptables mode and the rules that use them, but for what others may use.
func (w *world) leftovers(variant string) string {
	w.t.Helper()
	// The kubelet has chains of such names, too, and others mark packets by KUBE-MARK-MASQ.
	ours := regexp.MustCompile(`KUBE-(SERVICES|NODEPORTS|POSTROUTING|FORWARD|PROXY-FIREWALL|EXTERNAL-SERVICES|SVC-|SEP-|EXT-|SVL-|FW-|PROXY-CANARY)`)
	var found []string
	for _, family := range []string{"iptables", "ip6tables"} {
		lines := slices.Collect(strings.Lines(w.run(w.Node1.Namespace, family+"-"+variant+"-save")))
		found = append(found, slices.DeleteFunc(lines, func(line string) bool { return !ours.MatchString(line) })...)
	}
	return strings.Join(found, "")
}

func (w *world) awaitNoLeftovers(variant string) {
	w.t.Helper()
	eventually(w.t, "removal of what the iptables mode left", func() error {
		if left := w.leftovers(variant); left != "" {
			return fmt.Errorf("there is:\n%s", left)
		}
		return nil
	})
}

// cleanUp runs the program with --cleanup.
func (p *proxy) cleanUp() {
	p.t.Helper()
	cleanup := *p
	cleanup.flags = []string{"--cleanup"}
	cleanup.start()
	if code := cleanup.awaitEnd(); code != 0 {
		p.t.Errorf("--cleanup: exit code %d:\n%s", code, p.log)
	}
}
