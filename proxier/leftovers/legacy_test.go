package leftovers

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

// programDirectory makes PATH a directory of these programs: the name of each, and the program that it is a link to or its text as a script.
func programDirectory(t *testing.T, programs map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, is := range programs {
		path, err := exec.LookPath(is)
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, name))
		} else {
			err = os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+is), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

// atPath returns a script that runs a program as PATH has it now.
func atPath(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	return "exec " + path + ` "$@"`
}

func TestRemoveFromLegacyByProgramsOfAnyName(t *testing.T) {
	nftRestore, legacySave, legacyRestore := atPath(t, "iptables-nft-restore"), atPath(t, "iptables-legacy-save"), atPath(t, "iptables-legacy-restore")
	blind := `[ "$1" = --version ] && echo "iptables-restore v1.8.9 (legacy)" || echo "*nat"`
	old := `[ "$1" = --version ] && echo "iptables-restore v1.6.1" && exit
` + legacyRestore
	cases := map[string]map[string]string{
		"legacy in the name": {"iptables-legacy-save": "iptables-legacy-save", "iptables-legacy-restore": "iptables-legacy-restore"},
		"iptables is legacy": {"iptables-save": "iptables-legacy-save", "iptables-restore": "iptables-legacy-restore"},
		"before v1.8":        {"iptables-save": legacySave, "iptables-restore": old},
		"only the program of many names": {"xtables-legacy-multi": "xtables-legacy-multi",
			"iptables-save": "iptables-nft-save", "iptables-restore": nftRestore},
		"others see nothing": {"iptables-legacy-save": blind, "iptables-legacy-restore": blind,
			"iptables-save": "iptables-legacy-save", "iptables-restore": "iptables-legacy-restore"},
	}
	for name, programs := range cases {
		t.Run(name, func(t *testing.T) {
			newNamespace(t)
			path := os.Getenv("PATH")
			load(t, nft.IPv4, "legacy", "")
			programDirectory(t, programs)
			report := remove(t)
			t.Setenv("PATH", path)
			if got := saved(t, nft.IPv4, "legacy"); strings.Contains(got, "KUBE-SERVICES -") {
				t.Errorf("report is %+v; left\n%s", report, got)
			}
		})
	}
}

func TestRemoveFromLegacyWithoutPrograms(t *testing.T) {
	cases := map[string]map[string]string{
		"none":            {},
		"of iptables-nft": {"iptables-save": "iptables-nft-save", "iptables-restore": "iptables-nft-restore"},
		"only one of two": {"iptables-legacy-save": "iptables-legacy-save"},
	}
	for name, programs := range cases {
		t.Run(name, func(t *testing.T) {
			newNamespace(t)
			load(t, nft.IPv4, "legacy", "")
			load(t, nft.IPv6, "legacy", "-without") // nothing is to be removed from it, so no program is missed
			load(t, nft.IPv4, "nft", "")
			iptables(t, nft.IPv4, "nft", "", "", "-t", "nat", "-A", "DOCKER", "-j", markMasquerade) // so that iptables-nft sees a chain of kube-proxy
			path := os.Getenv("PATH")
			programDirectory(t, programs)
			report, err := Remove(quiet)
			t.Setenv("PATH", path)
			if !errors.Is(err, errNoProgram) {
				t.Fatalf("error is %v", err)
			}
			for _, want := range []string{"legacy table ip filter", "legacy table ip nat", "install iptables-legacy", "iptables-legacy-restore", "restart the node"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error is %q, without %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "ip6") {
				t.Errorf("error is %q", err)
			}
			if !slices.Contains(report.Removed, "table ip nat: 3 rules and 41 chains") {
				t.Errorf("what could be removed was not: %q", report.Removed)
			}
		})
	}
}

// A table that others change between reading and writing is read anew.
func TestRemoveFromLegacyWhileOthersChangeIt(t *testing.T) {
	save, restore, rules := atPath(t, "iptables-legacy-save"), atPath(t, "iptables-legacy-restore"), atPath(t, "iptables-legacy")
	newNamespace(t)
	path := os.Getenv("PATH")
	load(t, nft.IPv4, "legacy", "")
	mark := filepath.Join(t.TempDir(), "changed")
	run := strings.TrimSuffix(strings.TrimPrefix(rules, "exec "), ` "$@"`)
	programDirectory(t, map[string]string{
		"iptables-legacy-save": save,
		"iptables-legacy-restore": `if [ "$1" = --noflush ] && [ ! -e ` + mark + ` ]; then : > ` + mark + `
` + run + ` -t nat -A CNI-HOSTPORT-DNAT -j KUBE-NODEPORTS
` + run + ` -t filter -A DOCKER -j KUBE-NODEPORTS
fi
` + restore,
	})
	report := remove(t)
	t.Setenv("PATH", path)
	if len(report.Kept) != 2 || !strings.Contains(report.Kept[0], "KUBE-NODEPORTS without its rules, for a rule of chain") {
		t.Errorf("report is %+v", report)
	}
	if got := iptables(t, nft.IPv4, "legacy", "-save", "", "-t", "nat"); !strings.Contains(got, "-A CNI-HOSTPORT-DNAT -j KUBE-NODEPORTS") {
		t.Errorf("left\n%s", got)
	}
}

func TestRemoveFromLegacyFails(t *testing.T) {
	newNamespace(t)
	load(t, nft.IPv4, "legacy", "")
	save := atPath(t, "iptables-legacy-save")
	programDirectory(t, map[string]string{
		"iptables-legacy-save":    save,
		"iptables-legacy-restore": `[ "$1" = --version ] && echo "iptables-restore v1.8.9 (legacy)" && exit; echo "no such luck" >&2; exit 2`,
	})
	report, err := Remove(quiet)
	if err == nil || !strings.Contains(err.Error(), "legacy table ip nat") || !strings.Contains(err.Error(), "no such luck") || report.Removed != nil {
		t.Errorf("report is %+v, error is %v", report, err)
	}
}

func TestTargetOf(t *testing.T) {
	for text, want := range map[string]string{
		`-j KUBE-SERVICES`: "KUBE-SERVICES",
		`-d 10.0.0.0/8 -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`: "KUBE-SERVICES",
		`-p tcp -g KUBE-NODEPORTS`:                               "KUBE-NODEPORTS",
		`-m comment --comment "a \" -j KUBE-SERVICES" -j ACCEPT`: "ACCEPT",
		`-m comment --comment -j -j ACCEPT`:                      "ACCEPT",
		`-m comment --comment "-j KUBE-SERVICES"`:                "",
		`-m comment --comment "ends in a backslash \\" -j DROP`:  "DROP",
		`-m rpfilter --loose -j KUBE-FORWARD`:                    "KUBE-FORWARD",
		`-j LOG --log-prefix "x -j KUBE-SERVICES "`:              "LOG",
		`-p tcp`: "",
		``:       "",
	} {
		if got := targetOf(text); got != want {
			t.Errorf("target of %s is %q, want %q", text, got, want)
		}
	}
}
