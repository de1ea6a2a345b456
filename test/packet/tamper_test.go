package packet

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"

	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// generation returns the kernel's generation of the rules in a proxy's
// namespace.
func generation(t testing.TB, p *proxy) (n uint32) {
	t.Helper()
	err := p.at.Do(func() error {
		conn, err := nft.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		n, err = conn.Generation()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestTampering shows that a proxy repairs its tables after another program
// has changed them, while clients connect.
func TestTampering(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := service{name: "web", spec: "type: NodePort", endpoints: "a1 b1"}
	c.serve("web", &s)
	node := c.Node1.Namespace
	before := tables(t, node)
	for _, commands := range []string{
		"flush ruleset",
		"delete table ip kube-proxy; delete table ip6 kube-proxy",
		"flush table ip kube-proxy; flush table ip6 kube-proxy",
		"flush chain ip kube-proxy services; flush chain ip6 kube-proxy nat-prerouting",
		"insert rule ip kube-proxy services drop; delete chain ip6 kube-proxy nat-postrouting",
		// The check of rows is less frequent.
		"flush map ip kube-proxy service-classes; flush map ip6 kube-proxy service-targets; " +
			"flush map ip kube-proxy nodeport-targets; flush map ip6 kube-proxy class-chains; " +
			"flush set ip6 kube-proxy cluster-ips",
	} {
		t.Run(commands, func(t *testing.T) {
			w := c.startTraffic(t, &s, "client -> nodePort@node1\n pod1 -> clusterIP", time.Second)
			w.pass(1)
			for command := range strings.SplitSeq(commands, "; ") {
				labtest.Run(t, node, "nft", strings.Fields(command)...)
			}
			eventually(t, "repair", func() error {
				now, err := listTables(node)
				if err == nil && now != before {
					err = errors.New("the tables are not restored")
				}
				return err
			})
			w.awaitRecovery()
			w.stop()
			// Connection tracking keeps an attempt that the rules did not
			// translate for two minutes. Another one from the same port would
			// not be translated either.
			labtest.Run(t, node, "conntrack", "--flush")
			c.checks(&s, `
				client -> clusterIP nodePort@node1 => a1 b1 as node1
				pod1 -> clusterIP => a1 b1 as itself
				pod1 client -> clusterIP:9 => refused
			`).run(t)
		})
	}
}

// TestAttemptWithoutRules shows that clients that begin to connect while the
// rules are missing reach an endpoint when these are back.
func TestAttemptWithoutRules(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := service{name: "web", protocols: "TCP", endpoints: "a1"}
	c.serve("web", &s)
	c.terminate()
	node := c.Node1.Namespace
	labtest.Run(t, node, "nft", "flush ruleset; add table inet other; "+
		"add chain inet other forward { type filter hook forward priority 0; }; "+
		"add rule inet other forward ct state established accept") // turns on connection tracking
	w := c.startTraffic(t, &s, "pod1 -> clusterIP", 10*time.Second)
	for _, family := range []string{"ipv4", "ipv6"} {
		eventually(t, "attempt over "+family, func() error {
			out := labtest.Run(t, node, "conntrack", "--dump", "--family", family, "--proto", "tcp")
			if !strings.Contains(out, "SYN_SENT") {
				return errors.New("no attempt")
			}
			return nil
		})
	}
	c.start()
	w.pass(1)
	w.mustNotFail()
}

// TestCleanup shows that --cleanup removes the proxy's tables and nothing
// else.
func TestCleanup(t *testing.T) {
	t.Parallel()
	c := newIdleCluster(t, defaultFlags()...)
	const others = `
		table ip other { chain input { type filter hook input priority 0; }; }
		table ip kube-proxy-2 { set s { type ipv4_addr; elements = { 192.0.2.1 }; }; }
		table inet kube-proxy { chain c { counter; }; }
	`
	for _, p := range c.proxies {
		cmd := p.at.Command(t.Context(), "nft", "-f", "-")
		cmd.Stdin = strings.NewReader(others)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	before := labtest.Run(t, c.Node1.Namespace, "nft", "list", "ruleset")
	cleanup := func() {
		t.Helper()
		program, env := kubeProxy(t)
		cleanup := c.Node1.Command(t.Context(), program, "--cleanup")
		cleanup.Env = env
		if out, err := cleanup.CombinedOutput(); err != nil {
			t.Fatalf("--cleanup: %v\n%s", err, out)
		}
		if after := labtest.Run(t, c.Node1.Namespace, "nft", "list", "ruleset"); after != before {
			t.Errorf("rules after --cleanup: got\n%s\nwant\n%s", after, before)
		}
	}
	cleanup() // without tables
	c.start()
	s := service{name: "web", spec: "type: NodePort\nsessionAffinity: ClientIP", endpoints: "a1"}
	c.serve("web", &s)
	c.checks(&s, "client -> nodePort@node1 => a1 as node1").run(t)
	c.terminate()
	cleanup()
	c.checks(&s, "client pod2 -> nodePort@node1 => refused\n pod1 -> clusterIP => dropped").run(t)
}
