package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/listing"
)

// flushTwice is a damage that happens again while the proxy repairs it, as with
// `systemctl restart nftables`.
const flushTwice = "flush ruleset twice"

//go:embed damages.txt
var damageCommands string

// damages returns commands of nft that damage the tables, after their kinds.
// FAMILY, VIP and OTHER are replaced: the family, and the ClusterIPs of steady
// Services of it. FIRST is replaced by the handle of the first rule of the
// chain before it.
func damages() (all [][2]string) {
	for line := range strings.Lines(damageCommands) {
		if kind, command, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			all = append(all, [2]string{kind, command})
		}
	}
	return all
}

// damage damages the tables of a node and waits until they are repaired.
func (f *faults) damage(ctx context.Context, n *node, d draw) (repaired time.Duration, err error) {
	script, family, err := f.world.script(ctx, n.Namespace, d)
	if err != nil {
		return 0, err
	}
	run := func() error { return runNft(ctx, n.Namespace, script) }
	all := strings.Contains(script, "drop") // of packets that the node only forwards, too
	return f.world.repaired(ctx, window{kind: d.kind, node: n, all: all, family: family}, script, func() error {
		if d.kind != flushTwice {
			return run()
		}
		return during(ctx, time.Duration(5+d.number%200)*time.Millisecond, run, run)
	})
}

// repaired damages the tables of a node in a window, waits until they are as
// before, and returns how long that took after the damage. All that proxies do
// not replace in operation is compared.
func (w *world) repaired(
	ctx context.Context, open window, damage string, cause func() error,
) (repaired time.Duration, err error) {
	at := open.node.Namespace
	before, err := w.lasting(ctx, at)
	if err != nil {
		return 0, err
	}
	defer w.shut(w.open(open))
	if err := cause(); err != nil {
		return 0, err
	}
	began := time.Now()
	err = awaitEqual(ctx, time.Millisecond, patience, func() (_, after []string, err error) {
		after, err = w.lasting(ctx, at)
		return before, after, err
	})
	if err != nil {
		return 0, fmt.Errorf("not repaired on %s within %s: %s: %w", at.Name, patience, damage, err)
	}
	return time.Since(began), nil
}

// awaitEqual waits until two listings are equal. The error describes the last
// difference, or why there was no listing; therefore list does not end with the
// limit.
func awaitEqual(ctx context.Context, period, limit time.Duration, list func() (want, got []string, err error)) error {
	var differ error
	err := wait.PollUntilContextTimeout(ctx, period, limit, true, func(context.Context) (bool, error) {
		want, got, err := list()
		if differ = err; err == nil && !slices.Equal(want, got) {
			differ = errors.New(listing.Difference(want, got))
		}
		return differ == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w:\n%w", err, differ)
	}
	return nil
}

// fight deletes the table of one family every 100 ms, as a program that fights
// for it. Connections of the other family must succeed.
func (f *faults) fight(ctx context.Context, n *node, d draw) (repaired time.Duration, err error) {
	const pause = 100 * time.Millisecond
	family := families()[d.number%2]
	script := fmt.Sprintf("add table %[1]s kube-proxy; delete table %[1]s kube-proxy", family)
	return f.world.repaired(ctx, window{kind: d.kind, node: n, family: family}, script, func() error {
		for end := time.Now().Add(d.lasts); time.Now().Before(end) && lab.Sleep(ctx, pause); {
			if err := runNft(ctx, n.Namespace, script); err != nil {
				return err
			}
		}
		return nil
	})
}

// refer adds a chain that refers to balancers, so that the kernel refuses to
// delete them. The chain is deleted after a time, in which changes must be
// applied.
func (f *faults) refer(ctx context.Context, n *node, d draw) (time.Duration, error) {
	script := func(format string) func() error {
		return func() error { return runNft(ctx, n.Namespace, fmt.Sprintf(format, families()[d.number%2])) }
	}
	return 0, during(ctx, d.lasts,
		script("add chain %[1]s kube-proxy foreign; add rule %[1]s kube-proxy foreign jump balance-3"),
		script("add chain %[1]s kube-proxy foreign; flush chain %[1]s kube-proxy foreign; "+
			"delete chain %[1]s kube-proxy foreign"))
}

// runNft runs a script of nft in a namespace.
func runNft(ctx context.Context, at *lab.Namespace, script string) error {
	_, err := listing.Run(ctx, at, script)
	return err
}

// script returns the command of a damage, and the family that it damages, 0 for
// both.
func (w *world) script(ctx context.Context, at *lab.Namespace, d draw) (script string, damaged nft.Family, err error) {
	index := d.number % 2
	family := families()[index]
	vip, other := w.steady[0].Spec.ClusterIPs[index], w.steady[1].Spec.ClusterIPs[index]
	script = strings.NewReplacer("FAMILY", family.String(), "VIP", vip, "OTHER", other).Replace(d.command)
	if strings.Contains(d.command, "FAMILY") {
		damaged = family
	}
	if chain := firstRule.FindStringSubmatch(script); chain != nil {
		out, err := listing.Run(ctx, at, "-a", "list", "chain", family.String(), "kube-proxy", chain[1])
		if err != nil {
			return "", 0, err
		}
		rule := ruleHandle.FindStringSubmatch(out)
		if rule == nil {
			return "", 0, fmt.Errorf("chain %s has no rule: %s", chain[1], out)
		}
		script = strings.Replace(script, "FIRST", rule[1], 1)
	}
	return script, damaged, nil
}

var (
	firstRule  = regexp.MustCompile(`kube-proxy (\S+) handle FIRST`)
	ruleHandle = regexp.MustCompile(`(?m)^\t\t.* # handle (\d+)$`)
)

// lasting returns the lines of a node's tables that do not depend on Services
// that change: chains of the program, and the rows of steady Services without
// graceful replacements.
func (w *world) lasting(ctx context.Context, at *lab.Namespace) ([]string, error) {
	lines, err := listing.List(ctx, at)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, s := range w.steady {
		if !s.graceful {
			texts = append(texts, s.Spec.ClusterIPs...)
			texts = append(texts, fmt.Sprint("tcp . ", s.Spec.Ports[0].NodePort, " "))
		}
	}
	var all []string
	numbers := map[string]int{} // of lines, by object
	for _, l := range lines {
		if strings.Contains(l.Text, "unallocated") || strings.Contains(l.Text, "@firewall-sources-") {
			continue // rules for ServiceCIDRs and prefix lengths
		}
		name := l.Family + " " + l.Object
		numbers[name]++
		switch {
		case isLasting(l.Object):
			all = append(all, fmt.Sprint(name, " ", numbers[name], ": ", l.Text))
		case l.Object == "", strings.HasPrefix(l.Object, "ct timeout "),
			chainOfClass(l) != "" && isLasting("chain "+chainOfClass(l)),
			slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(l.Text+" ", text) }):
			all = append(all, l.String())
		}
	}
	slices.Sort(all)
	return all, nil
}

// isLasting reports whether the rules of a chain do not change. The rules of
// balancers and of the chains of service ports change, except for some that
// steady Services use.
func isLasting(object string) bool {
	name, isChain := strings.CutPrefix(object, "chain ")
	switch {
	case !isChain:
		return false
	case name == "balance-3" || name == "affinity.default.steady-sticky.tcp.tcp":
		return true
	}
	return !balancer.MatchString(name) && !strings.HasPrefix(name, "affinity") && !strings.HasPrefix(name, "port-")
}

// writeTable writes and deletes a table with many rows, as other programs do.
func (f *faults) writeTable(ctx context.Context, n *node, d draw) (time.Duration, error) {
	var rows []string
	for i := range 1 + d.number%2000 {
		rows = append(rows, fmt.Sprintf("10.%d.%d.%d", d.number%256, i/256, i%256))
	}
	add := "add table ip foreign; add set ip foreign many { type ipv4_addr; }; add element ip foreign many { " +
		strings.Join(rows, ", ") + " }"
	for _, script := range []string{add, "flush set ip foreign many", "delete table ip foreign"} {
		if err := runNft(ctx, n.Namespace, script); err != nil {
			return 0, err
		}
	}
	return 0, nil
}
