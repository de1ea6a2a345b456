package leftovers

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/xtables"
)

// savedWithoutKubeProxy returns the saved tables of a namespace that has only
// the rules of other programs.
func savedWithoutKubeProxy(t *testing.T, family nft.Family, variant string) string {
	t.Helper()
	var want string
	t.Run("others", func(t *testing.T) {
		newNamespace(t)
		load(t, family, variant, "-without")
		want = saved(t, family, variant)
	})
	return want
}

func TestRemove(t *testing.T) {
	for _, variant := range variants {
		t.Run(variant, func(t *testing.T) {
			want := make(map[nft.Family]string)
			for _, family := range families {
				want[family] = savedWithoutKubeProxy(t, family, variant)
			}
			newNamespace(t)
			for _, family := range families {
				load(t, family, variant, "")
			}
			report := remove(t)
			for _, family := range families {
				if got := saved(t, family, variant); got != want[family] {
					t.Errorf("%s: got\n%s\nwant\n%s", family, got, want[family])
				}
			}
			prefix := map[string]string{"nft": "table", "legacy": "legacy table"}[variant]
			var removed []string
			for _, family := range families {
				removed = append(removed,
					fmt.Sprintf("%s %s filter: 9 rules and 6 chains", prefix, family),
					fmt.Sprintf("%s %s nat: 3 rules and 42 chains", prefix, family),
					fmt.Sprintf("%s %s mangle: 0 rules and 1 chain", prefix, family))
			}
			slices.Sort(removed)
			slices.Sort(report.removed)
			if !slices.Equal(report.removed, removed) || report.kept != nil {
				t.Errorf("got removed\n%s\nkept %q, want removed\n%s",
					strings.Join(report.removed, "\n"), report.kept, strings.Join(removed, "\n"))
			}

			if again := remove(t); again.removed != nil || again.kept != nil {
				t.Errorf("got report %+v of the second removal, want an empty one", again)
			}
			for _, family := range families {
				if got := saved(t, family, variant); got != want[family] {
					t.Errorf("%s after the second removal: got\n%s\nwant\n%s", family, got, want[family])
				}
			}
		})
	}
}

// Both variants can have rules of kube-proxy, if the node's variant of
// iptables has changed.
func TestRemoveFromBothVariants(t *testing.T) {
	newNamespace(t)
	for _, variant := range variants {
		load(t, nft.IPv4, variant, "")
	}
	remove(t)
	for _, variant := range variants {
		if got := saved(t, nft.IPv4, variant); strings.Contains(got, "KUBE-SVC-NPX46M4PTMTKRN6Y") {
			t.Errorf("%s: got\n%s\nwant no leftovers", variant, got)
		}
	}
}

func TestRemoveKeepsRulesOfOtherPrograms(t *testing.T) {
	newNamespace(t)
	load(t, nft.IPv4, "nft", "")
	before := handles(t)
	remove(t)
	after := handles(t)
	for handle, rule := range after {
		if before[handle] != rule {
			t.Errorf("%s: got %q, want %q", handle, rule, before[handle])
		}
	}
	if len(after) < 20 {
		t.Errorf("got %d rules and chains, want at least 20", len(after))
	}
}

// handles returns the chains and rules of the IPv4 tables in nft's format, by
// table and handle. A table can have the handle of one of its chains.
func handles(t *testing.T) map[string]string {
	t.Helper()
	line := regexp.MustCompile(`^\s+(.*) # handle (\d+)$`)
	found := make(map[string]string)
	for _, table := range tables {
		for text := range strings.Lines(run(t, "", "nft", "-a", "list", "table", "ip", table)) {
			if m := line.FindStringSubmatch(strings.TrimSuffix(text, "\n")); m != nil {
				found[table+" "+m[2]] = m[1]
			}
		}
	}
	return found
}

// CNI plugins use KUBE-MARK-MASQ for hostPorts. Other chains in use stay,
// without their rules.
func TestRemoveKeepsChainsInUse(t *testing.T) {
	for _, variant := range variants {
		t.Run(variant, func(t *testing.T) {
			newNamespace(t)
			load(t, nft.IPv4, variant, "")
			iptables(t, nft.IPv4, variant, "-restore", `*nat
:CNI-DN-0123456789abcdef01234 - [0:0]
-A CNI-DN-0123456789abcdef01234 -s 10.244.0.0/16 -p tcp -m tcp --dport 8081 -j KUBE-MARK-MASQ
-A CNI-DN-0123456789abcdef01234 -p tcp -m tcp --dport 8081 -j DNAT --to-destination 10.244.0.5:80
-A CNI-HOSTPORT-DNAT -g CNI-DN-0123456789abcdef01234
-A CNI-HOSTPORT-DNAT -d 10.96.0.1/32 -g KUBE-SERVICES
COMMIT
`, "--noflush")
			report := remove(t)

			nat := iptables(t, nft.IPv4, variant, "-save", "", "-t", "nat")
			for _, rule := range []string{
				"-A CNI-DN-0123456789abcdef01234 -s 10.244.0.0/16 -p tcp -m tcp --dport 8081 -j KUBE-MARK-MASQ",
				"-A CNI-HOSTPORT-DNAT -d 10.96.0.1/32 -g KUBE-SERVICES",
				"-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
				":KUBE-SERVICES -",
			} {
				if !strings.Contains(nat, rule) {
					t.Errorf("got\n%s\nwant %s in it", nat, rule)
				}
			}
			for _, removed := range []string{"-A KUBE-SERVICES", "KUBE-SEP-", ":KUBE-POSTROUTING"} {
				if strings.Contains(nat, removed) {
					t.Errorf("got\n%s\nwant no %s in it", nat, removed)
				}
			}
			want := "KUBE-MARK-MASQ with its rules, used by a rule of chain CNI-DN-0123456789abcdef01234"
			if len(report.kept) != 2 || !strings.Contains(report.kept[0], want) {
				t.Errorf("got kept %q, want %q and another chain", report.kept, want)
			}
			again := remove(t)
			if again.removed != nil || len(again.kept) != 2 {
				t.Errorf("got report %+v of the second removal, want two kept chains", again)
			}
		})
	}
}

// Elements of maps also use chains. Only the kernel detects this use.
func TestRemoveKeepsChainsOfMaps(t *testing.T) {
	newNamespace(t)
	load(t, nft.IPv4, "nft", "")
	run(t, `add map ip nat others { type inet_service : verdict; elements = { 80 : goto KUBE-NODEPORTS }; }`,
		"nft", "-f", "-")
	report := remove(t)
	want := []string{
		"table ip nat: chain KUBE-NODEPORTS without its rules, used by a rule or an element of another program",
	}
	if !slices.Equal(report.kept, want) {
		t.Errorf("got kept %q, want %q", report.kept, want)
	}
	list := run(t, "", "nft", "list", "table", "ip", "nat")
	if strings.Contains(list, "KUBE-SVC-N") || !strings.Contains(list, "goto KUBE-NODEPORTS") {
		t.Errorf("got\n%s\nwant the map and no KUBE-SVC chains", list)
	}
}

// On a node without leftovers, Remove creates no table.
func TestRemoveNothing(t *testing.T) {
	newNamespace(t)
	if report := remove(t); report.removed != nil || report.kept != nil {
		t.Errorf("got report %+v, want an empty one", report)
	}
	for _, family := range families {
		if used, err := xtables.Names(family); len(used) > 0 || err != nil {
			t.Errorf("%s: got legacy tables %v, error %v, want none", family, used, err)
		}
	}
	if list := run(t, "", "nft", "list", "ruleset"); list != "" {
		t.Errorf("got ruleset\n%s\nwant an empty one", list)
	}
}

func TestRemoveLogs(t *testing.T) {
	newNamespace(t)
	load(t, nft.IPv4, "nft", "")
	run(t, `add map ip nat others { type inet_service : verdict; elements = { 80 : goto KUBE-NODEPORTS }; }`,
		"nft", "-f", "-")
	var log bytes.Buffer
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
	if err := Remove(klog.NewContext(t.Context(), logger)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"Removed leftovers of another kube-proxy mode" object="table ip nat: 3 rules and 41 chains"`,
		`"Kept leftovers of another kube-proxy mode that other programs use" ` +
			`object="table ip nat: chain KUBE-NODEPORTS `,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("got log\n%s\nwant %s in it", &log, want)
		}
	}
}

func BenchmarkRemoveNothing(b *testing.B) {
	newNamespace(b)
	for b.Loop() {
		remove(b)
	}
}
