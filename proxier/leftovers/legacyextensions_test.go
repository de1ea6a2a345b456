package leftovers

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/xtables"
)

// others are rules of other programs for both families, with counters. Their
// matches and targets have state in the kernel or much data.
const others = `*mangle
:PREROUTING ACCEPT [11:1100]
:INPUT ACCEPT [12:1200]
:FORWARD ACCEPT [13:1300]
:OUTPUT ACCEPT [14:1400]
:POSTROUTING ACCEPT [15:1500]
[1:10] -A PREROUTING -i eth0 -p tcp -m tcp --dport 5060 -j MARK --set-xmark 0x1/0x1
[2:20] -A PREROUTING -p tcp -m socket --nowildcard -j RATEEST RATEEST-OPTIONS
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
[2:22] -A INPUT -p tcp -m hashlimit HASHLIMIT-OPTIONS -j ACCEPT
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

// loadOthers loads these rules and, after them, the rules of a node with
// kube-proxy.
func loadOthers(t *testing.T, family nft.Family) {
	t.Helper()
	families := map[nft.Family]string{nft.IPv4: "inet", nft.IPv6: "inet6"}
	run(t, "", "ipset", "create", "others", "hash:ip", "family", families[family])
	target, gateway := "10.244.0.9", "10.244.0.1"
	if family == nft.IPv6 {
		target, gateway = "fd00:244::9", "fd00:244::1"
	}
	rules := strings.NewReplacer("TARGET", target, "GATEWAY", gateway,
		"RATEEST-OPTIONS", "--rateest-name others --rateest-interval 250ms --rateest-ewmalog 500ms",
		"HASHLIMIT-OPTIONS", "--hashlimit-upto 10/sec --hashlimit-burst 5 "+
			"--hashlimit-mode srcip --hashlimit-name others")
	iptables(t, family, "legacy", "-restore", rules.Replace(others), "--counters")
	iptables(t, family, "legacy", "-restore", testdata(t, family, ""), "--noflush")
}

// removalCommands returns the input for iptables-restore that removes the
// leftovers from the output of iptables-save.
func removalCommands(saved string) string {
	var out, last []string
	table := ""
	for line := range strings.Lines(saved) {
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table = words[0][1:]
			out = append(out, words[0])
		case strings.HasPrefix(line, ":") && isLeftoverChain(table, words[0][1:]):
			out = append(out, words[0]+" - [0:0]")
			last = append(last, "-X "+words[0][1:])
		case len(words) > 3 && words[0] == "-A" &&
			isLeftoverJump(table, rule{chain: words[1], target: words[len(words)-1]}):
			out = append(out, "-D "+strings.TrimSpace(line)[len("-A "):])
		case words[0] == "COMMIT":
			out = append(append(out, last...), words[0])
			last = nil
		}
	}
	return strings.Join(out, "\n") + "\n"
}

// readLegacy returns the legacy tables of a family.
func readLegacy(t *testing.T, family nft.Family) map[string]*xtables.Table {
	t.Helper()
	found := make(map[string]*xtables.Table)
	for _, name := range tables {
		var err error
		if found[name], err = xtables.ReadTable(family, name); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// The tables after a removal equal those after a removal by iptables, byte by
// byte: the data of matches and targets, references to kernel state, and
// counters.
func TestRemoveFromLegacyEqualsIptables(t *testing.T) {
	for _, family := range families {
		t.Run(family.String(), func(t *testing.T) {
			var want map[string]*xtables.Table
			t.Run("iptables", func(t *testing.T) {
				newNamespace(t)
				loadOthers(t, family)
				commands := removalCommands(iptables(t, family, "legacy", "-save", ""))
				iptables(t, family, "legacy", "-restore", commands, "--noflush")
				want = readLegacy(t, family)
			})
			newNamespace(t)
			loadOthers(t, family)
			remove(t)
			for name, got := range readLegacy(t, family) {
				want := want[name]
				if !slices.Equal(got.Chains(), want.Chains()) {
					t.Fatalf("table %s: got chains %q, want %q", name, got.Chains(), want.Chains())
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("table %s: got\n%+v\nwant\n%+v", name, got, want)
				}
			}
		})
	}
}

// A removal keeps the state of matches and targets, and the counters of
// rules.
func TestRemoveFromLegacyKeepsState(t *testing.T) {
	for _, family := range families {
		t.Run(family.String(), func(t *testing.T) {
			newNamespace(t)
			loadOthers(t, family)
			const recent = "/proc/thread-self/net/xt_recent/others"
			client := map[nft.Family]string{nft.IPv4: "192.0.2.7", nft.IPv6: "2001:db8::7"}[family]
			if err := os.WriteFile(recent, []byte("+"+client), 0); err != nil {
				t.Fatal(err)
			}
			before := counters(t, family)
			remove(t)
			after := counters(t, family)
			for _, line := range after {
				if !slices.Contains(before, line) {
					t.Errorf("got %s, want it unchanged", line)
				}
			}
			if rules := strings.Count(others, "] -A "); len(after) < rules+15 {
				t.Errorf("got %d rules and chains, want at least %d: %q", len(after), rules+15, after)
			}
			if seen, err := os.ReadFile(recent); err != nil || !strings.Contains(string(seen), "src=") {
				t.Errorf("got recent clients %q, error %v, want %s", seen, err, client)
			}
		})
	}
}

// counters returns the rules and chains of iptables-save with their counters.
func counters(t *testing.T, family nft.Family) []string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(iptables(t, family, "legacy", "-save", "", "-c")) {
		if line[0] == '[' || line[0] == ':' {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}
