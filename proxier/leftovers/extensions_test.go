package leftovers

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

// others are rules with matches and targets that keep something in the kernel or are large, for both families, with counters.
const others = `*mangle
:PREROUTING ACCEPT [11:1100]
:INPUT ACCEPT [12:1200]
:FORWARD ACCEPT [13:1300]
:OUTPUT ACCEPT [14:1400]
:POSTROUTING ACCEPT [15:1500]
[1:10] -A PREROUTING -i eth0 -p tcp -m tcp --dport 5060 -j MARK --set-xmark 0x1/0x1
[2:20] -A PREROUTING -p tcp -m socket --nowildcard -j RATEEST --rateest-name others --rateest-interval 250ms --rateest-ewmalog 500ms
[2:20] -A PREROUTING -p udp -m udp --dport 53 -j CONNMARK --set-xmark 0x2/0x2
[3:30] -A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
[4:40] -A OUTPUT -m owner --uid-owner 0 -j DSCP --set-dscp 0x0a
COMMIT
*filter
:INPUT ACCEPT [21:2100]
:FORWARD DROP [22:2200]
:OUTPUT ACCEPT [23:2300]
:OTHERS - [0:0]
:OTHERS-EMPTY - [0:0]
[1:11] -A INPUT -m limit --limit 5/sec --limit-burst 7 -j ACCEPT
[2:22] -A INPUT -p tcp -m hashlimit --hashlimit-upto 10/sec --hashlimit-burst 5 --hashlimit-mode srcip --hashlimit-name others -j ACCEPT
[3:33] -A INPUT -m recent --set --name others --rsource
[4:44] -A INPUT -m recent --update --seconds 60 --hitcount 4 --name others --rsource -j DROP
[5:55] -A INPUT -m statistic --mode nth --every 3 --packet 1 -j OTHERS
[6:66] -A INPUT -m statistic --mode random --probability 0.50000000000 -j OTHERS
[7:77] -A INPUT -p tcp -m conntrack --ctstate NEW -m comment --comment "some \"words\"" -g OTHERS
[8:88] -A INPUT -m set --match-set others src -j SET --add-set others dst
[9:99] -A INPUT -j LOG --log-prefix "others " --log-level 6
[10:110] -A INPUT -p udp -m multiport --dports 53,123 -m connlimit --connlimit-upto 5 -j REJECT
[11:121] -A INPUT -p tcp -m string --string "others" --algo bm -j NFLOG --nflog-group 1
[12:132] -A FORWARD -m physdev --physdev-is-bridged -j OTHERS
[13:143] -A OUTPUT -m quota --quota 1000000 -j OTHERS-EMPTY
[14:154] -A OUTPUT -m addrtype --dst-type LOCAL -m mark --mark 0x8/0x8
[15:165] -A OUTPUT -m time --timestart 08:00 --timestop 18:00 -j TEE --gateway GATEWAY
[16:176] -A OTHERS -j RETURN
[17:187] -A OTHERS -m bpf --bytecode "4,48 0 0 9,21 0 1 6,6 0 0 1,6 0 0 0" -j DROP
COMMIT
*nat
:PREROUTING ACCEPT [31:3100]
:INPUT ACCEPT [32:3200]
:OUTPUT ACCEPT [33:3300]
:POSTROUTING ACCEPT [34:3400]
:OTHERS - [0:0]
[1:12] -A PREROUTING -p tcp -m tcp --dport 8080 -j DNAT --to-destination TARGET
[2:24] -A PREROUTING -p tcp -m tcp --dport 8081 -j REDIRECT --to-ports 81
[3:36] -A OUTPUT -j OTHERS
[4:48] -A OTHERS -p udp -m udp --dport 1:1024 -j DNAT --to-destination TARGET
[5:60] -A POSTROUTING -o eth0 -j MASQUERADE --random-fully
[6:72] -A POSTROUTING -m rateest --rateest others --rateest-gt --rateest-bps 1Mbit -j SNAT --to-source GATEWAY
COMMIT
`

// loadOthers loads these rules, and those of a node with kube-proxy after them.
func loadOthers(t *testing.T, family nft.Family) {
	t.Helper()
	families := map[nft.Family]string{nft.IPv4: "inet", nft.IPv6: "inet6"}
	run(t, "", "ipset", "create", "others", "hash:ip", "family", families[family])
	rules := strings.NewReplacer("TARGET", "10.244.0.9", "GATEWAY", "10.244.0.1")
	if family == nft.IPv6 {
		rules = strings.NewReplacer("TARGET", "fd00:244::9", "GATEWAY", "fd00:244::1")
	}
	iptables(t, family, "legacy", "-restore", rules.Replace(others), "--counters")
	iptables(t, family, "legacy", "-restore", testdata(t, family, ""), "--noflush")
}

// byIptables returns what iptables-restore removes by what is kube-proxy's, as makePlan decides it by itself, of what iptables-save printed.
func byIptables(saved string) string {
	var out, last []string
	table := ""
	for line := range strings.Lines(saved) {
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table = words[0][1:]
			out = append(out, words[0])
		case strings.HasPrefix(line, ":") && ownedChain(table, words[0][1:]):
			out = append(out, words[0]+" - [0:0]")
			last = append(last, "-X "+words[0][1:])
		case len(words) > 3 && words[0] == "-A" && ownedJump(table, rule{chain: words[1], target: words[len(words)-1]}):
			out = append(out, "-D "+strings.TrimSpace(line)[len("-A "):])
		case words[0] == "COMMIT":
			out = append(append(out, last...), words[0])
			last = nil
		}
	}
	return strings.Join(out, "\n") + "\n"
}

// readLegacy returns the legacy tables of a family as the kernel has them.
func readLegacy(t *testing.T, family nft.Family) map[string]legacyTable {
	t.Helper()
	s, err := openLegacy(family)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	found := make(map[string]legacyTable)
	for _, name := range tables {
		if found[name], err = s.read(name); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// What is left is what iptables leaves, byte by byte: the data of matches and targets, what they refer to in the kernel, and counters.
func TestRemoveFromLegacyAsIptablesDoes(t *testing.T) {
	for _, family := range families {
		t.Run(family.String(), func(t *testing.T) {
			var want map[string]legacyTable
			t.Run("iptables", func(t *testing.T) {
				newNamespace(t)
				loadOthers(t, family)
				commands := byIptables(iptables(t, family, "legacy", "-save", ""))
				iptables(t, family, "legacy", "-restore", commands, "--noflush")
				want = readLegacy(t, family)
			})
			newNamespace(t)
			loadOthers(t, family)
			remove(t)
			for name, got := range readLegacy(t, family) {
				want := want[name]
				if !slices.Equal(got.chainNames(), want.chainNames()) || len(got.entries) != len(want.entries) {
					t.Fatalf("table %s has chains %q with %d entries, want %q with %d",
						name, got.chainNames(), len(got.entries), want.chainNames(), len(want.entries))
				}
				if got.first != want.first || got.policy != want.policy {
					t.Errorf("table %s: built-in chains are at %d and %d, want %d and %d", name, got.first, got.policy, want.first, want.policy)
				}
				for i, e := range want.entries {
					if !bytes.Equal(got.data[e.at:e.next], want.data[e.at:e.next]) {
						t.Errorf("table %s: entry %d is\n%x\nwant\n%x", name, i, got.data[e.at:e.next], want.data[e.at:e.next])
					}
				}
			}
		})
	}
}

// What matches and targets of others remember in the kernel stays, and the counters of others' rules.
func TestRemoveFromLegacyKeepsWhatOthersCount(t *testing.T) {
	for _, family := range families {
		t.Run(family.String(), func(t *testing.T) {
			newNamespace(t)
			loadOthers(t, family)
			const recent = "/proc/thread-self/net/xt_recent/others"
			client := map[nft.Family]string{nft.IPv4: "192.0.2.7", nft.IPv6: "2001:db8::7"}[family]
			if err := os.WriteFile(recent, []byte("+"+client), 0); err != nil {
				t.Fatal(err)
			}
			before := counted(t, family)
			remove(t)
			after := counted(t, family)
			for _, line := range after {
				if !slices.Contains(before, line) {
					t.Errorf("%s was another before", line)
				}
			}
			if rules := strings.Count(others, "] -A "); len(after) < rules+15 {
				t.Errorf("%d rules and chains are left: %q", len(after), after)
			}
			if seen, err := os.ReadFile(recent); err != nil || !strings.Contains(string(seen), "src=") {
				t.Errorf("the list of recent clients is %q, %v", seen, err)
			}
		})
	}
}

// counted returns all that iptables-save prints of rules and chains with their counters.
func counted(t *testing.T, family nft.Family) []string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(iptables(t, family, "legacy", "-save", "", "-c")) {
		if line[0] == '[' || line[0] == ':' {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}
