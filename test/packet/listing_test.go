package packet

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/lab/listing"
)

// tables returns the nft listing of the proxy's tables in a namespace, in
// canonical form: tables with the same meaning have the same text. It omits
// elements that packets add, and unreferenced chains. It returns no text with a
// subject.
func tables(t testing.TB, at *lab.Namespace) string {
	t.Helper()
	if subject() != "" {
		return "" // not compared
	}
	text, err := listTables(at)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// listTables is like tables. A missing table is an error.
func listTables(at *lab.Namespace) (string, error) {
	lines, err := listing.List(context.Background(), at)
	return markerPorts.ReplaceAllString(canonical(lines), "$1 . marker"), err
}

// markerPorts matches the marker service's address and port, which
// cluster.settle changes. Without /etc/protocols, nft lists the number of the
// protocol.
var markerPorts = regexp.MustCompile(`\b(10\.96\.0\.9|fd00:96::9) \. (?:tcp|6) \. \d+`)

// freshTables returns the tables of another proxy that reads the same
// manifests in an empty namespace.
func (c *cluster) freshTables(t testing.TB, p *proxy) string {
	t.Helper()
	c.last++
	pod := labtest.AddPod(t, c.Node1, fmt.Sprintf("fresh-%d", c.last))
	fresh := newProxy(t, pod.Namespace, p.node, p.flags...)
	fresh.objects = p.objects
	fresh.start(t)
	fresh.awaitRules(t)
	fresh.terminate(t)
	text := tables(t, pod.Namespace)
	if err := pod.Remove(); err != nil {
		t.Fatal(err)
	}
	return text
}

// expectFresh compares the tables of each node with the tables of a proxy that
// starts now. It returns at once with a subject.
func (c *cluster) expectFresh(t testing.TB) {
	t.Helper()
	if subject() != "" {
		return
	}
	for _, p := range c.proxies {
		if d := differences(c.freshTables(t, p), tables(t, p.at)); d != "" {
			t.Errorf("tables of %s differ from the tables of a fresh start:\n%s", p.node, d)
		}
	}
}

// canonical sorts lines by object, and elements, and omits unreferenced chains.
func canonical(lines []listing.Line) string {
	lines = slices.DeleteFunc(lines, func(l listing.Line) bool {
		return l.Element && (isAffinitySet(l) || l.Object == "set reserved-ids")
	})
	for n := -1; n != len(lines); {
		n = len(lines)
		lines = withoutUnreferenced(lines)
	}
	element := func(l listing.Line) string {
		if l.Element {
			return l.Text
		}
		return ""
	}
	slices.SortStableFunc(lines, func(a, b listing.Line) int {
		return cmp.Or(strings.Compare(a.Family, b.Family), strings.Compare(a.Object, b.Object),
			strings.Compare(element(a), element(b)))
	})
	var out strings.Builder
	for _, l := range lines {
		fmt.Fprintln(&out, l)
	}
	return out.String()
}

// isAffinitySet reports whether packets add elements to the set of a line.
func isAffinitySet(l listing.Line) bool { return strings.HasPrefix(l.Object, "set sticky-clients-") }

// withoutUnreferenced omits chains without a hook that no rule and no element
// refers to, classes of balancers that no frontend has, and affinity sets that
// no rule uses: the proxy keeps them for the next Service.
func withoutUnreferenced(lines []listing.Line) []listing.Line {
	needed := make(map[string]bool)
	for _, l := range lines {
		for _, m := range references.FindAllStringSubmatch(l.Text, -1) {
			needed[l.Family+" "+m[1]] = true
		}
		if strings.HasSuffix(l.Object, "-classes") {
			needed[l.Family+" "+l.Text[strings.LastIndexByte(l.Text, ' ')+1:]] = true
		}
		if strings.Contains(l.Text, " hook ") {
			needed[l.Family+" "+strings.TrimPrefix(l.Object, "chain ")] = true
		}
	}
	return slices.DeleteFunc(lines, func(l listing.Line) bool {
		kind, name, _ := strings.Cut(l.Object, " ")
		if class, _, _ := strings.Cut(l.Text, " "); l.Element && strings.HasSuffix(name, "class-chains") {
			return !strings.HasPrefix(class, "f0") && !needed[l.Family+" "+class]
		}
		return (kind == "chain" || isAffinitySet(l)) && !needed[l.Family+" "+name]
	})
}

// references matches references to chains and sets.
var references = regexp.MustCompile(`(?:goto |jump |@)([^\s,}]+)`)

// differences returns the lines that only one of two listings has. It is empty
// for equal listings.
func differences(a, b string) string {
	if a == b {
		return ""
	}
	sorted := func(text string) []string { return slices.Sorted(strings.Lines(text)) }
	return cmp.Or(listing.Difference(sorted(a), sorted(b)), "(same lines, another order)")
}
