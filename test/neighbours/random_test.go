package neighbours

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/doctor"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

var rulesets = flag.Uint64("rulesets", 24, "number of random firewalls")

// TestRandomFirewalls compares the prediction of doctor with packets, for
// random firewalls: if it finds nothing, all connections succeed. If it is
// certain that a rule drops packets, some connections fail.
func TestRandomFirewalls(t *testing.T) {
	t.Parallel()
	n := newNode(t, "bookworm")
	second := labtest.AddPod(t, n.lab.Node1, "second") // the client of the first pod, as doctor chooses it
	labtest.Serve(t, targetPort, second.Namespace)
	n.serve("second", 30, second.Addrs()...)
	n.start()
	n.works("without a firewall")
	found := make(map[doctor.Result]int)
	for seed := range *rulesets {
		rules := randomFirewall(rand.New(rand.NewPCG(seed, 0)))
		if _, err := n.run("nft -f - <<'X'\n" + rules + "\nX"); err != nil {
			continue // nft or the kernel refuses some combinations
		}
		f := n.diagnose("filters")
		found[f.Result]++
		failed := n.failing(300 * time.Millisecond)
		if f.Result == doctor.OK && len(failed) > 0 {
			failed = n.failing(5 * time.Second) // on a busy machine an answer can be late
		}
		switch {
		case f.Result == doctor.OK && len(failed) > 0:
			t.Errorf("seed %d: doctor found nothing, but %d attempts failed:\n%s\n%s",
				seed, len(failed), strings.Join(failed, "\n"), rules)
		case f.Result == doctor.Fail && len(failed) == 0:
			t.Errorf("seed %d: all attempts succeeded, but doctor found %q\n%s", seed, f.Details, rules)
		}
	}
	t.Logf("results of doctor: %v", found)
	if found[doctor.OK] == 0 || found[doctor.Fail] == 0 {
		t.Errorf("got %v, want some of each", found)
	}
}

// randomFirewall returns a table in nft syntax that replaces itself.
func randomFirewall(r *rand.Rand) string {
	pick := func(options ...string) string { return options[r.IntN(len(options))] }
	match := func() string {
		return pick(
			"ip saddr 10.244.0.0/16", "ip daddr 10.244.0.0/16", "ip daddr != 10.0.0.0/8", "ip6 daddr fd00:244::/32",
			"ip6 saddr != fd00:244::/32", `iifname "eth0"`, `oifname "eth0"`, `iifname "veth*"`, `iifname != "eth0"`,
			"tcp dport 8080", "udp dport { 53, 8080 }", "tcp dport != 8000-9000", "tcp sport 8080", "meta l4proto tcp",
			"meta l4proto { udp, sctp }", "ct state new", "ct state established,related", "ct state invalid",
			"ct status dnat", "ct direction reply", "meta mark & 0x4000 == 0x4000", "meta nfproto ipv6",
			"fib saddr type local", "fib daddr type local", "fib saddr . iif oif missing", "tcp flags syn / syn,ack",
			"ip saddr @pods", "iifname . oifname { \"eth0\" . \"lo\" }", "ip protocol udp", "ip ttl > 3",
		)
	}
	rule := func(verdict string) string {
		text := match()
		if r.IntN(2) == 0 {
			text += " " + match()
		}
		return text + " counter " + verdict
	}
	chain := func(head string, verdicts ...string) string {
		var b strings.Builder
		b.WriteString(head)
		for range 1 + r.IntN(4) {
			b.WriteString("\t\t" + rule(pick(verdicts...)) + "\n")
		}
		return b.String() + "\t}\n"
	}
	hook := pick("forward", "forward", "forward", "prerouting", "output", "input")
	base := fmt.Sprintf("\tchain base {\n\t\ttype filter hook %s priority %s; policy %s\n", hook,
		pick("0", "-150", "50"), pick("accept", "accept", "drop"))
	return "table inet fw\ndelete table inet fw\ntable inet fw {\n" +
		"\tset pods { type ipv4_addr; flags interval; elements = { 10.244.1.0/24, 192.0.2.1 }; }\n" +
		chain("\tchain zone {\n", "accept", "drop", "reject", "return") +
		chain(base, "accept", "drop", "jump zone", "goto zone", "accept") +
		"}\n"
}
