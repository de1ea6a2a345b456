package nft_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab/listing"
)

// checkTexts fails the test if a rule of the table has another text than the
// one that is found, or if nft lists a rule in another way.
func checkTexts(t testing.TB, c *nft.Conn, table *nft.Table) {
	t.Helper()
	for _, chain := range table.Chains {
		found, err := c.Rules(table, chain.Name)
		if err != nil || len(found) != len(chain.Rules) {
			t.Fatalf("chain %s: got %d rules, %v; want %d", chain.Name, len(found), err, len(chain.Rules))
		}
		for i, r := range chain.Rules {
			if got, want := found[i].Text(table.Family), r.Text(table.Family); !found[i].Equal(r) || got != want {
				t.Errorf("rule %d of chain %s: got\n%s\nwant\n%s", i, chain.Name, got, want)
			}
		}
	}
	checkListing(t, c)
}

// checkListing fails the test if nft lists a rule of the namespace in another
// way than Rule.Text. It returns the number of rules.
func checkListing(t testing.TB, c *nft.Conn) (rules int) {
	t.Helper()
	families := map[string]nft.Family{"ip": nft.IPv4, "ip6": nft.IPv6, "inet": nft.Inet}
	for line := range strings.Lines(runNFT(t, "", "list", "tables")) { // table ip lb
		words := strings.Fields(line)
		table := &nft.Table{Family: families[words[1]], Name: words[2]}
		want := make(map[string][]string)
		for _, l := range listing.Parse(words[1], runNFT(t, "", append([]string{"--stateless", "list"}, words...)...)) {
			if chain, ok := strings.CutPrefix(l.Object, "chain "); ok && l.Text != "" &&
				!strings.HasPrefix(l.Text, "type ") {
				want[chain] = append(want[chain], l.Text)
			}
		}
		chains, err := c.Chains(table)
		if err != nil {
			t.Fatal(err)
		}
		for _, chain := range chains {
			found, err := c.Rules(table, chain.Name)
			if err != nil || len(found) != len(want[chain.Name]) {
				t.Fatalf("%s, chain %s: got %d rules, %v; want %q", table, chain.Name, len(found), err,
					want[chain.Name])
			}
			for i, r := range found {
				if got := asListed(r.Text(table.Family)); got != want[chain.Name][i] {
					t.Errorf("%s, chain %s: got\n%s\nwant\n%s", table, chain.Name, got, want[chain.Name][i])
				}
			}
			rules += len(found)
		}
	}
	return rules
}

// nft lists each rule that the proxy and its command trace write as Rule.Text
// returns it. Tests of their packages compare these files with the rules.
func TestRuleTexts(t *testing.T) {
	c := open(t)
	var files []string
	for _, pattern := range []string{
		"../proxier/testdata/golden/*.nft", "../proxier/table/testdata/sample-*.nft",
		"../cmd/kube-proxy/operator/trace/testdata/tables.txtar",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("got files %q, %v of %s", found, err, pattern)
		}
		files = append(files, found...)
	}
	rules := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for section := range strings.SplitSeq(string(text), "\n-- ") {
			_, after, named := strings.Cut(section, " --\n")
			if named {
				section = after
			}
			load(t, strings.ReplaceAll(section, "\tflags owner\n", "")) // which would end with nft
			rules += checkListing(t, c)
		}
	}
	if rules < 400 {
		t.Errorf("got %d rules, want at least 400", rules)
	}
}

// Rules of other programs.
const (
	foreignRules = `
		counter accept
		ct state established,related counter accept
		ct state invalid drop
		ct status dnat,snat accept
		ct mark set meta mark
		ct mark & 0x000000ff == 0x00000010 accept
		ct direction reply accept
		meta mark 0x00000010 accept
		meta mark & 0x0000ff00 == 0x00001200 accept
		meta mark set 0x00000020
		meta mark set meta mark & 0xffffff00 | 0x00000003
		tcp dport 22 accept
		tcp dport 8000-8079 accept
		tcp dport != 8000-8079 accept
		udp sport 53 udp dport > 1023 accept
		meta l4proto tcp accept
		meta l4proto sctp accept
		tcp flags fin / fin,syn,rst,ack drop
		tcp flags & (syn | rst) == syn | rst drop
		th dport 53 accept
		limit rate 5/second accept
		limit rate over 10/minute burst 20 packets drop
		iifname "docker0" oifname != "docker0" accept
		iifname "veth*" accept
		fib saddr . iif oif missing drop
		fib daddr type broadcast drop
		reject with tcp reset
		jump other comment "a comment"
		numgen inc mod 4 offset 2 3 accept
		jhash meta mark . th sport mod 8 seed 0x7 offset 2 3 accept
		symhash mod 4 1 accept
		return
	`
	foreignIPv4 = `
		ip saddr 10.0.0.0/8 ip daddr 10.244.0.7 tcp dport 443 accept
		ip saddr & 255.0.255.0 == 10.0.7.0 accept
		ip saddr 10.0.0.1-10.0.0.9 accept
		ip protocol tcp accept
		reject with icmp admin-prohibited
		ip daddr . tcp dport @sockets drop
	`
	foreignIPv6 = `
		ip6 saddr fd00::/8 ip6 daddr fd00::7 udp dport 443 accept
		ip6 nexthdr tcp accept
		reject with icmpv6 policy-fail
	`
	foreignInet = `
		reject with icmpx host-unreachable
		meta nfproto ipv4 reject with icmp port-unreachable
		meta nfproto ipv6 accept
		ip daddr 10.244.0.7 tcp dport 80 dnat ip to 10.244.0.8:8080
	`
	translateIPv4 = `
		tcp dport 80 dnat to 10.244.0.7:8080
		dnat to 10.244.0.7
		ip saddr 10.0.0.0/8 dnat to 10.0.0.1-10.0.0.9 random,persistent
	`
	translateIPv6 = `
		tcp dport 80 dnat to [fd00::7]:8080
		dnat to fd00::7
	`
)

// nft lists rules of other programs as Rule.Text returns them, but for sets
// without a name and for expressions that the package does not know.
func TestForeignRuleTexts(t *testing.T) {
	c := open(t)
	for family, rules := range map[string]string{
		"ip":   foreignRules + "\treject\n" + foreignIPv4 + translateIPv4,
		"ip6":  foreignRules + "\treject\n" + foreignIPv6 + translateIPv6,
		"inet": foreignRules + "\treject\n" + foreignIPv4 + foreignIPv6 + foreignInet,
	} {
		load(t, fmt.Sprintf(`table %s fw {
			set sockets { type ipv4_addr . inet_service; }
			chain other { }
			chain rules { %s }
		}`, family, rules))
		checkListing(t, c)
	}
}
