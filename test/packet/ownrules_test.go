package packet

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/lab/listing"
)

// TestOwnRules shows that the rules of docs/neighbours.md see packets before
// they are translated, and that the proxy does not remove them.
func TestOwnRules(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/neighbours.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)## Rules of your own.*?```\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/neighbours.md has no example")
	}
	c := newCluster(t)
	s := service{name: "web", endpoints: "a1 b1"}
	c.serve("web", &s)
	guarded := c.checks(&s, "pod1 -> clusterIP => lost")
	examples := [][2]string{{"10.244.3.7", "10.96.0.10"}, {"fd00:244:3::7", "fd00:96::10"}}
	rules := string(block[1])
	for _, k := range guarded {
		for _, example := range examples {
			if to := k.to.Addr(); to.Is6() == strings.Contains(example[0], ":") {
				rules = strings.ReplaceAll(rules, example[0], k.origin.AddrLike(to).String())
				rules = strings.ReplaceAll(rules, example[1], to.String())
			}
		}
	}
	if _, err := listing.Run(t.Context(), c.Node1.Namespace, rules); err != nil {
		t.Fatal(err)
	}
	guarded.run(t)
	c.checks(&s, "pod2 node1 -> clusterIP => a1 b1 as itself").run(t)
	c.restart()
	guarded.run(t)
	labtest.Run(t, c.Node1.Namespace, "nft", "delete", "table", "inet", "site")
	labtest.Run(t, c.Node1.Namespace, "conntrack", "--flush")
	c.checks(&s, "pod1 -> clusterIP => a1 b1 as itself").run(t)
}
