package packet

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestCanary serves the example of docs/balance.md. The canary gets its share,
// also after a change of its weight.
func TestCanary(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/balance.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)## A canary.*?```yaml\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/balance.md has no example")
	}
	c := newCluster(t)
	manifest := string(block[1])
	for example, pod := range map[string]string{"10.244.1.5": "a1", "10.244.2.5": "b1", "10.244.3.5": "a2"} {
		if !strings.Contains(manifest, example) {
			t.Fatalf("the example has no endpoint %s", example)
		}
		manifest = strings.ReplaceAll(manifest, example, c.pods[pod].Addrs()[ipv4].String())
	}
	s := service{name: "web", number: 10, protocols: "TCP", families: "IPv4"} // 10.96.0.10, as in the example
	s.setDefaults(c)
	for _, tt := range []struct {
		weight      string
		connections int
		low, high   float64 // share of the canary
	}{{"10", 10_000, 0.04, 0.06}, {"95", 1200, 0.27, 0.40}, {"0", 1200, 0, 0}} {
		c.write("web", strings.ReplaceAll(manifest, `nftproxy.io/weight: "10"`, `nftproxy.io/weight: "`+tt.weight+`"`))
		c.settle()
		counts := c.checks(&s, "pod1 -> clusterIP => refused")[0].spread(t, tt.connections)
		if share := float64(counts["a2"]) / float64(tt.connections); share < tt.low || share > tt.high {
			t.Errorf("weight %s: got a share of %.3f, want %.3f to %.3f; connections: %v",
				tt.weight, share, tt.low, tt.high, counts)
		}
	}
}
