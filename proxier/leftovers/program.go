package leftovers

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
)

// program is a program of iptables and the arguments that choose what it does.
type program []string

// programs are a pair of programs that print and change the legacy tables of a family.
type programs struct{ save, restore program }

// familyNames are the beginnings of the names of iptables' programs.
var familyNames = map[nft.Family]string{nft.IPv4: "iptables", nft.IPv6: "ip6tables"}

// candidates returns the names under which distributions have the programs of iptables-legacy. One without "legacy" in its name can be of
// either kind.
func candidates(family nft.Family) []programs {
	name := familyNames[family]
	return []programs{
		{program{name + "-legacy-save"}, program{name + "-legacy-restore"}},
		{program{name + "-save"}, program{name + "-restore"}},
		{program{"xtables-legacy-multi", name + "-save"}, program{"xtables-legacy-multi", name + "-restore"}},
	}
}

// legacy says whether a program is in PATH and works on legacy tables. `iptables-restore --version` tells "v1.8.9 (legacy)" or
// "v1.8.9 (nf_tables)"; before v1.8.0, when there was but one kind, it told "v1.6.1". Of the programs of a pair, only iptables-restore
// tells in all versions.
func (p program) legacy(ctx context.Context) bool {
	out, err := p.run(ctx, "", "--version")
	return err == nil && strings.Contains(out, " v1.") && !strings.Contains(out, "nf_tables")
}

// there says whether a program is in PATH.
func (p program) there() bool {
	_, err := exec.LookPath(p[0])
	return err == nil
}

// run runs the program and returns what it prints. The error has what it says of errors.
func (p program) run(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, p[0], append(p[1:len(p):len(p)], args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		said := strings.Join(strings.Fields(stderr.String()), " ")
		return "", fmt.Errorf("run %s: %w: %s", strings.Join(cmd.Args, " "), err, said)
	}
	return stdout.String(), nil
}

// findPrograms returns the pairs of programs for the legacy tables of a family that are in PATH.
func findPrograms(ctx context.Context, family nft.Family) []programs {
	var found []programs
	for _, p := range candidates(family) {
		if p.save.there() && p.restore.there() && p.restore.legacy(ctx) {
			found = append(found, p)
		}
	}
	return found
}
