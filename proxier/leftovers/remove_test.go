package leftovers

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

// onlyOthers returns what is saved of a namespace that kube-proxy was never in.
func onlyOthers(t *testing.T, family nft.Family, variant string) string {
	t.Helper()
	var want string
	done := make(chan struct{})
	t.Run("others", func(t *testing.T) {
		newNamespace(t)
		load(t, family, variant, "-without")
		want = saved(t, family, variant)
		close(done)
	})
	<-done
	return want
}

func TestRemove(t *testing.T) {
	for _, variant := range variants {
		t.Run(variant, func(t *testing.T) {
			want := make(map[nft.Family]string)
			for _, family := range families {
				want[family] = onlyOthers(t, family, variant)
			}
			newNamespace(t)
			for _, family := range families {
				load(t, family, variant, "")
			}
			report := remove(t)
			for _, family := range families {
				if got := saved(t, family, variant); got != want[family] {
					t.Errorf("%s: left\n%s\nwant\n%s", family, got, want[family])
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
			slices.Sort(report.Removed)
			if !slices.Equal(report.Removed, removed) || report.Kept != nil {
				t.Errorf("report is\n%s\nkept %q; want\n%s", strings.Join(report.Removed, "\n"), report.Kept, strings.Join(removed, "\n"))
			}

			if again := remove(t); again.Removed != nil || again.Kept != nil {
				t.Errorf("the second time: %+v", again)
			}
			for _, family := range families {
				if got := saved(t, family, variant); got != want[family] {
					t.Errorf("%s: the second time changed it to\n%s", family, got)
				}
			}
		})
	}
}

// Both kinds of iptables can hold rules of kube-proxy at once, after the node's kind of iptables changed.
func TestRemoveFromBothVariants(t *testing.T) {
	newNamespace(t)
	for _, variant := range variants {
		load(t, nft.IPv4, variant, "")
	}
	remove(t)
	for _, variant := range variants {
		if got := saved(t, nft.IPv4, variant); strings.Contains(got, "KUBE-SVC-NPX46M4PTMTKRN6Y") {
			t.Errorf("%s has\n%s", variant, got)
		}
	}
}

func TestRemoveLeavesRulesOfOthersUntouched(t *testing.T) {
	newNamespace(t)
	load(t, nft.IPv4, "nft", "")
	before := handles(t)
	remove(t)
	after := handles(t)
	for handle, rule := range after {
		if before[handle] != rule {
			t.Errorf("%s is now %q, was %q", handle, rule, before[handle])
		}
	}
	if len(after) < 20 {
		t.Errorf("only %d rules and chains are left", len(after))
	}
}

// handles returns chains and rules of the IPv4 tables as nft prints them, by table and handle.
func handles(t *testing.T) map[string]string {
	t.Helper()
	line := regexp.MustCompile(`^\s*(.*) # handle (\d+)$`)
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

// Plugins of CNI use KUBE-MARK-MASQ for hostPorts. Whatever else is used stays as well, but does nothing any more.
func TestRemoveKeepsWhatOthersUse(t *testing.T) {
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
					t.Errorf("%s is missing of\n%s", rule, nat)
				}
			}
			for _, gone := range []string{"-A KUBE-SERVICES", "KUBE-SEP-", ":KUBE-POSTROUTING"} {
				if strings.Contains(nat, gone) {
					t.Errorf("%s is still in\n%s", gone, nat)
				}
			}
			if len(report.Kept) != 2 || !strings.Contains(report.Kept[0], "KUBE-MARK-MASQ as it is, for a rule of chain CNI-DN-0123456789abcdef01234") {
				t.Errorf("kept %q", report.Kept)
			}
			again := remove(t)
			if again.Removed != nil || len(again.Kept) != 2 {
				t.Errorf("the second time: %+v", again)
			}
		})
	}
}

// Elements of maps refer to chains as well, which only the kernel can tell.
func TestRemoveKeepsWhatMapsReferTo(t *testing.T) {
	newNamespace(t)
	load(t, nft.IPv4, "nft", "")
	run(t, `add map ip nat others { type inet_service : verdict; elements = { 80 : goto KUBE-NODEPORTS }; }`, "nft", "-f", "-")
	report := remove(t)
	if want := []string{"table ip nat: chain KUBE-NODEPORTS without its rules, for a rule or an element of another program"}; !slices.Equal(report.Kept, want) {
		t.Errorf("kept %q, want %q", report.Kept, want)
	}
	if list := run(t, "", "nft", "list", "table", "ip", "nat"); strings.Contains(list, "KUBE-SVC-N") || !strings.Contains(list, "goto KUBE-NODEPORTS") {
		t.Errorf("left\n%s", list)
	}
}

// A node that had neither of the other modes is left as it is: no table is made by looking.
func TestRemoveNothing(t *testing.T) {
	newNamespace(t)
	if report := remove(t); report.Removed != nil || report.Kept != nil {
		t.Errorf("report is %+v", report)
	}
	for _, family := range families {
		if used, err := legacyTables(family); len(used) > 0 || err != nil {
			t.Errorf("%s: legacy tables %v, %v", family, used, err)
		}
	}
	if list := run(t, "", "nft", "list", "ruleset"); list != "" {
		t.Errorf("ruleset is\n%s", list)
	}
}

func BenchmarkRemoveNothing(b *testing.B) {
	newNamespace(b)
	for b.Loop() {
		remove(b)
	}
}
