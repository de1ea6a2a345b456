package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
)

// damages returns commands of nft that damage the tables, by name. FAMILY, VIP
// and OTHER are replaced: the family, and the ClusterIPs of steady Services of
// it.
func damages() [][2]string {
	return [][2]string{
		{"flush ruleset", "flush ruleset"},
		{"flush ruleset", "flush ruleset"},
		{"delete table", "delete table FAMILY kube-proxy"},
		{"dormant table", "add table FAMILY kube-proxy { flags dormant; }"},
		{"flush chain", "flush chain FAMILY kube-proxy services"},
		{"flush chain", "flush chain FAMILY kube-proxy nat-prerouting"},
		{"flush chain", "flush chain FAMILY kube-proxy masquerading"},
		{"flush chain", "flush chain FAMILY kube-proxy balance-3"},
		{"add rule", "insert rule FAMILY kube-proxy services drop"},
		{"add rule", "insert rule FAMILY kube-proxy balance-3 reject"},
		{"flush map", "flush map FAMILY kube-proxy service-ips"},
		{"flush map", "flush map FAMILY kube-proxy service-endpoints"},
		{"flush map", "flush map FAMILY kube-proxy service-nodeports"},
		{"flush map", "flush set FAMILY kube-proxy cluster-ips"},
		{"delete row", "delete element FAMILY kube-proxy service-ips { VIP . tcp . 80 }"},
		{"delete row", "delete element FAMILY kube-proxy service-endpoints { VIP . tcp . 80 . 0 }"},
		{"delete row", "delete element FAMILY kube-proxy service-nodeports { tcp . 32700 }"},
		{"change row", "delete element FAMILY kube-proxy service-ips { VIP . tcp . 80 }; " +
			"add element FAMILY kube-proxy service-ips { VIP . tcp . 80 : drop }"},
		{"change row", "delete element FAMILY kube-proxy service-endpoints { VIP . tcp . 80 . 1 }; " +
			"add element FAMILY kube-proxy service-endpoints { VIP . tcp . 80 . 1 : OTHER . 9 }"},
		{"flush chain", "flush chain FAMILY kube-proxy affinity.default.steady-sticky.tcp.tcp"},
	}
}

// damage damages the tables of a node and waits until they are repaired. All
// that proxies do not replace in operation is compared.
func (f *faults) damage(ctx context.Context, d draw) (repaired time.Duration, err error) {
	script := f.world.script(d)
	n := f.world.nodes[d.node]
	before, err := f.world.lasting(ctx, n.Namespace)
	if err != nil {
		return 0, err
	}
	all := strings.Contains(script, "drop") // of packets that the node only forwards, too
	window := f.world.open(window{kind: d.kind, node: n, all: all})
	defer f.world.shut(window)
	if out, err := n.Command(ctx, "nft", script).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("nft %s: %w: %s", script, err, out)
	}
	began := time.Now()
	for sleep(ctx, 0) {
		if after, err := f.world.lasting(ctx, n.Namespace); err == nil {
			if slices.Equal(before, after) {
				break
			}
			if time.Since(began) > patience {
				return 0, fmt.Errorf("not repaired on %s after %s: %s:\n%s", n.Name, patience, script, difference(before, after))
			}
		} else if time.Since(began) > patience {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// script returns the command of a damage.
func (w *world) script(d draw) string {
	family := []string{"ip", "ip6"}[d.number%2]
	vip, other := w.steady[0].clusterIPs()[d.number%2], w.steady[1].clusterIPs()[d.number%2]
	return strings.NewReplacer("FAMILY", family, "VIP", vip, "OTHER", other).Replace(d.command)
}

// lasting returns the lines of a node's tables that do not depend on Services
// that change: chains of the program, and the rows of steady Services without
// graceful replacements.
func (w *world) lasting(ctx context.Context, at *lab.Namespace) ([]string, error) {
	lines, err := list(ctx, at)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, s := range w.steady {
		if !s.graceful {
			texts = append(texts, s.clusterIPs()...)
			texts = append(texts, fmt.Sprint("tcp . ", 32700+s.number, " "))
		}
	}
	var all []string
	for i, l := range lines {
		_, name, _ := strings.Cut(l.object, " ")
		switch {
		case strings.Contains(l.text, "unallocated"): // a rule for a ServiceCIDR
		case isLasting(name):
			all = append(all, fmt.Sprint(l.object, " ", i-slices.IndexFunc(lines, func(o line) bool {
				return o.object == l.object
			}), ": ", l.text))
		case strings.HasPrefix(l.object, "ip") && name == "",
			slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(l.text+" ", text) }):
			all = append(all, l.String())
		}
	}
	slices.Sort(all)
	return all, nil
}

// isLasting reports whether the rules of a chain do not change: all but those
// of balancers and of session affinity, except for some that steady Services
// use.
func isLasting(object string) bool {
	name, isChain := strings.CutPrefix(object, "chain ")
	switch {
	case !isChain:
		return false
	case name == "balance-3" || name == "affinity.default.steady-sticky.tcp.tcp":
		return true
	}
	return !balancer.MatchString(name) && !strings.HasPrefix(name, "affinity")
}

// writeTable writes and deletes a table with many rows, as other programs do.
func (f *faults) writeTable(ctx context.Context, n *node, number int) (time.Duration, error) {
	var rows []string
	for i := range 1 + number%2000 {
		rows = append(rows, fmt.Sprintf("10.%d.%d.%d", number%256, i/256, i%256))
	}
	add := "add table ip foreign; add set ip foreign many { type ipv4_addr; }; add element ip foreign many { " +
		strings.Join(rows, ", ") + " }"
	for _, script := range []string{add, "flush set ip foreign many", "delete table ip foreign"} {
		if out, err := n.Command(ctx, "nft", script).CombinedOutput(); err != nil {
			return 0, fmt.Errorf("foreign table: %w: %s", err, out)
		}
	}
	return follow(ctx, n)
}
