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
)

// tables returns the nft listing of the proxy's tables in a namespace, in
// canonical form: tables with the same meaning have the same text. It omits
// elements that packets add, and unreferenced chains.
func tables(t testing.TB, at *lab.Namespace) string {
	t.Helper()
	text, err := listTables(at)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// listTables is like tables. A missing table is an error.
func listTables(at *lab.Namespace) (string, error) {
	var all strings.Builder
	for _, family := range []string{"ip", "ip6"} {
		out, err := at.Command(context.Background(), "nft", "list", "table", family, "kube-proxy").Output()
		if err != nil {
			return "", fmt.Errorf("list table %s kube-proxy in %s: %w", family, at.Name, err)
		}
		all.WriteString(canonical(string(out)))
	}
	text := counts.ReplaceAllString(all.String(), "counted")
	return markerPorts.ReplaceAllString(text, "$1 . marker"), nil
}

// markerPorts matches the marker service's address and port, which
// cluster.settle changes. Without /etc/protocols, nft lists the number of the
// protocol.
var markerPorts = regexp.MustCompile(`\b(10\.96\.0\.1|fd00:96::1) \. (?:tcp|6) \. \d+`)

// counts matches the values of a named counter.
var counts = regexp.MustCompile(`\bpackets \d+ bytes \d+`)

// freshTables returns the tables of another proxy that reads the same
// manifests in an empty namespace.
func (c *cluster) freshTables(t testing.TB, p *proxy) string {
	t.Helper()
	c.last++
	pod := labtest.AddPod(t, c.Node1, fmt.Sprintf("fresh-%d", c.last))
	fresh := newProxy(t, pod.Namespace, p.node, p.flags...)
	fresh.dir = p.dir
	fresh.start(t)
	fresh.awaitRules(t)
	fresh.terminate(t)
	text := tables(t, pod.Namespace)
	if err := pod.Remove(); err != nil {
		t.Fatal(err)
	}
	return text
}

// expectFresh compares the tables of each node with those of a proxy that
// starts now.
func (c *cluster) expectFresh(t testing.TB, when string) {
	t.Helper()
	for _, p := range c.proxies {
		if d := differences(c.freshTables(t, p), tables(t, p.at)); d != "" {
			t.Errorf("%s: tables of %s differ from those of a fresh start:\n%s", when, p.node, d)
		}
	}
}

// listedBlock is a set, map or chain of a table. The first line has its name.
type listedBlock struct {
	kind, name string
	lines      []string
}

// canonical sorts the listing of a table and omits unreferenced chains.
func canonical(listing string) string {
	header, blocks := parseListing(listing)
	for n := -1; n != len(blocks); {
		n = len(blocks)
		blocks = withoutUnreferenced(blocks)
	}
	slices.SortStableFunc(blocks, func(a, b listedBlock) int {
		return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.name, b.name))
	})
	var out strings.Builder
	out.WriteString(header)
	for _, b := range blocks {
		out.WriteString(strings.Join(b.lines, "\n") + "\n")
	}
	return out.String()
}

// parseListing parses the listing of a table and sorts its elements.
func parseListing(listing string) (header string, blocks []listedBlock) {
	listing = elementLists.ReplaceAllStringFunc(listing, sortElements)
	for line := range strings.Lines(listing) {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		switch {
		case line == "" || line == "}":
		case len(words) == 3 && words[2] == "{" && (words[0] == "set" || words[0] == "map" || words[0] == "chain"):
			blocks = append(blocks, listedBlock{kind: words[0], name: words[1], lines: []string{line}})
		case len(blocks) == 0:
			header += line + "\n"
		default:
			b := &blocks[len(blocks)-1]
			if !(isAffinitySet(b.name) || b.name == "reserved-affinity-ids") || !strings.HasPrefix(line, "elements") {
				b.lines = append(b.lines, line)
			}
		}
	}
	return header, blocks
}

// elementLists matches the elements of a set. They have no braces.
var elementLists = regexp.MustCompile(`elements = \{[^}]*\}`)

func sortElements(list string) string {
	list = strings.TrimSuffix(strings.TrimPrefix(list, "elements = {"), "}")
	var elements []string
	for _, e := range strings.Split(list, ",") {
		elements = append(elements, strings.Join(strings.Fields(e), " "))
	}
	slices.Sort(elements)
	// parseListing omits the elements of affinity sets as one line.
	return "elements = {" + strings.Join(elements, ", ") + "}"
}

// isAffinitySet reports whether packets add elements to the set of that name.
func isAffinitySet(name string) bool { return strings.HasPrefix(name, "clients-") }

// withoutUnreferenced omits chains without a hook that no rule and no element
// refers to, and affinity sets that no rule uses: the proxy keeps them for
// the next Service.
func withoutUnreferenced(blocks []listedBlock) []listedBlock {
	referenced := make(map[string]bool)
	for _, b := range blocks {
		for _, line := range b.lines {
			for _, m := range references.FindAllStringSubmatch(line, -1) {
				referenced[m[1]] = true
			}
		}
	}
	return slices.DeleteFunc(blocks, func(b listedBlock) bool {
		hooked := len(b.lines) > 1 && strings.Contains(b.lines[1], " hook ")
		return (b.kind == "chain" && !hooked || isAffinitySet(b.name)) && !referenced[b.name]
	})
}

// references matches references to chains and sets.
var references = regexp.MustCompile(`(?:goto |jump |@)([^\s,}]+)`)

// differences returns the lines that only one of two listings has, with one
// element per line. It is empty for equal listings.
func differences(a, b string) string {
	if a == b {
		return ""
	}
	lines := func(text string) map[string]int {
		count := make(map[string]int)
		set := ""
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasSuffix(line, "{") {
				set = line
			}
			for _, part := range strings.Split(line, ", ") {
				count[set+" "+part]++
			}
		}
		return count
	}
	in, other := lines(a), lines(b)
	var out []string
	for line, n := range in {
		if n > other[line] {
			out = append(out, "- "+line)
		}
	}
	for line, n := range other {
		if n > in[line] {
			out = append(out, "+ "+line)
		}
	}
	slices.Sort(out)
	const most = 40
	if len(out) > most {
		out = append(out[:most], "...")
	}
	if out == nil {
		out = []string{"(same lines, another order)"}
	}
	return strings.Join(out, "\n")
}
