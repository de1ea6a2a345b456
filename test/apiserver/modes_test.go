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

// TestFromIPTables takes over from kube-proxy's iptables mode while clients
// connect. The subject must remove its chains, from both variants of
// iptables. kube-proxy's nftables mode removes them before it has written its
// own rules: connections fail.
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
				t.Fatal("kube-proxy has no iptables chains")
			}
			w.run(w.Node1.Namespace, "iptables-"+variant,
				"--append", "INPUT", "--protocol", "tcp", "--destination-port", "9", "--jump", "DROP")
			stream := steady.startStream(t)
			stream.pass(100)
			before.kill()
			p := w.subject()
			if p.name == upstream { // it uses the first iptables in PATH only
				p.wrapper = before.wrapper
			}
			p.startSynced()
			w.awaitNoLeftovers(variant)
			stream.pass(200)
			if p.name == product {
				stream.mustNotFail()
			}
			steady.servedBy("a1 a2 b1")
			if rules := w.run(w.Node1.Namespace, "iptables-"+variant+"-save"); !strings.Contains(rules,
				"--dport 9 -j DROP") {
				t.Errorf("rule of another program is missing:\n%s", rules)
			}

			// The reverse: --cleanup.
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

// iptablesMode returns kube-proxy in iptables mode, with a variant of
// iptables.
func (w *world) iptablesMode(variant string) *proxy {
	w.t.Helper()
	// kube-proxy runs the programs by these names.
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

// leftovers returns the chains of kube-proxy's iptables mode and the rules
// that use them, without those that other programs may use.
func (w *world) leftovers(variant string) string {
	w.t.Helper()
	// The kubelet has chains with such names, and other programs use
	// KUBE-MARK-MASQ.
	const names = "SERVICES|NODEPORTS|POSTROUTING|FORWARD|PROXY-FIREWALL|EXTERNAL-SERVICES|" +
		"SVC-|SEP-|EXT-|SVL-|FW-|PROXY-CANARY"
	ours := regexp.MustCompile("KUBE-(" + names + ")")
	var found []string
	for _, family := range []string{"iptables", "ip6tables"} {
		lines := slices.Collect(strings.Lines(w.run(w.Node1.Namespace, family+"-"+variant+"-save")))
		found = append(found, slices.DeleteFunc(lines, func(line string) bool { return !ours.MatchString(line) })...)
	}
	return strings.Join(found, "")
}

func (w *world) awaitNoLeftovers(variant string) {
	w.t.Helper()
	eventually(w.t, "removal of the iptables mode", func() error {
		if left := w.leftovers(variant); left != "" {
			return fmt.Errorf("got\n%s", left)
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
		p.t.Errorf("--cleanup: exit code %d:\n%s", code, cleanup.process.Log())
	}
}
