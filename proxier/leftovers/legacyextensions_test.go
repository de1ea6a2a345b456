package leftovers

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/xtables"
)

// loadOthers loads rules of other programs whose matches and targets have state
// in the kernel or much data and, after them, the rules of a node with
// kube-proxy.
func loadOthers(t *testing.T, family nft.Family) {
	t.Helper()
	families := map[nft.Family]string{nft.IPv4: "inet", nft.IPv6: "inet6"}
	run(t, "", "ipset", "create", "others", "hash:ip", "family", families[family])
	load(t, family, "legacy", fileOf(family, "-others"), "--counters")
	load(t, family, "legacy", fileOf(family, ""), "--noflush")
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
			t.Parallel()
			var want map[string]*xtables.Table
			t.Run("iptables", func(t *testing.T) {
				enter(t)
				loadOthers(t, family)
				commands := removalCommands(iptables(t, family, "legacy", "-save", ""))
				iptables(t, family, "legacy", "-restore", commands, "--noflush")
				want = readLegacy(t, family)
			})
			enter(t)
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
