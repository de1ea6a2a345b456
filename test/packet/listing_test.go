package packet

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/lab/listing"
)

// tables returns the lines of the proxy's tables in a namespace in canonical
// form: tables with the same meaning have the same lines. It returns none with
// a subject.
func tables(t testing.TB, at *lab.Namespace) []string {
	t.Helper()
	if subject() != "" {
		return nil // not compared
	}
	lines, err := listing.List(context.Background(), at)
	if err != nil {
		t.Fatal(err)
	}
	all := listing.Canonical(lines)
	for i, line := range all {
		all[i] = markerPorts.ReplaceAllString(line, "$1 . marker")
	}
	slices.Sort(all)
	return all
}

// markerPorts matches the marker service's address and port, which
// cluster.settle changes. Without /etc/protocols, nft lists the number of the
// protocol.
var markerPorts = regexp.MustCompile(`\b(10\.96\.0\.9|fd00:96::9) \. (?:tcp|6) \. \d+`)

// freshTables returns the tables of another proxy that reads the same
// manifests in an empty namespace.
func (c *cluster) freshTables(t testing.TB, p *proxy) []string {
	t.Helper()
	c.last++
	pod := labtest.AddPod(t, c.Node1, fmt.Sprintf("fresh-%d", c.last))
	fresh := newProxy(t, pod.Namespace, p.node, p.flags...)
	fresh.objects = p.objects
	fresh.start(t)
	fresh.awaitRules(t)
	fresh.terminate(t)
	lines := tables(t, pod.Namespace)
	if err := pod.Remove(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// expectFresh compares the tables of each node with the tables of a proxy that
// starts now. It returns at once with a subject.
func (c *cluster) expectFresh(t testing.TB) {
	t.Helper()
	if subject() != "" {
		return
	}
	for _, p := range c.proxies {
		if d := listing.Difference(c.freshTables(t, p), tables(t, p.at)); d != "" {
			t.Errorf("tables of %s differ from the tables of a fresh start:\n%s", p.node, d)
		}
	}
}
