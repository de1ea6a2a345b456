package packet

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
)

// TestDistribution shows that each of N endpoints gets the same share of
// connections.
func TestDistribution(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for i := range 50 {
		serveNumbered(t, c.pods["a1"], i)
	}
	for i, test := range []struct {
		endpoints, connections int
		// limit is the quantile of chi-squared with endpoints-1 degrees of
		// freedom that equal shares exceed less than once in 10^12 tests.
		limit float64
	}{
		{1, 60, 0}, {2, 160, 50.8}, {3, 160, 55.3}, {7, 280, 68.1}, {50, 1400, 153.6},
	} {
		t.Run(fmt.Sprintf("%d endpoints", test.endpoints), func(t *testing.T) {
			var slices []string
			for i := range test.endpoints {
				slices = append(slices, fmt.Sprint("a1 port=", spareTarget+i))
			}
			s := c.serve(fmt.Sprintf("{name: web-%d, protocols: UDP, spec: {type: NodePort}, endpoints: %s}", i,
				strings.Join(slices, " / ")))
			// One path in each family: the same rule chooses the endpoint for
			// all paths.
			for f, path := range []string{"pod1 -> clusterIP", "client -> nodePort@node1"} {
				k := c.checks(s, path+" => refused")[f]
				counts := k.spread(t, test.connections)
				if got := chiSquared(counts, test.endpoints); len(counts) != test.endpoints || got > test.limit {
					t.Errorf("%s, %v: got chi-squared %.1f, want at most %.1f; connections by endpoint: %v",
						path, family(f), got, test.limit, counts)
				}
			}
		})
	}
}

// serveNumbered serves at port spareTarget+i of a pod. Its answers have the
// name i.
func serveNumbered(t *testing.T, pod *lab.Pod, i int) {
	t.Helper()
	name := pod.Name
	defer func() { pod.Name = name }()
	pod.Name = fmt.Sprint(i)
	if _, err := pod.ServeUDP(spareTarget + uint16(i)); err != nil {
		t.Fatal(err)
	}
}

// spread makes connections and returns their number by server.
func (c *check) spread(t *testing.T, connections int) map[string]int {
	t.Helper()
	var mu sync.Mutex
	counts := make(map[string]int)
	const workers = 4
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for range connections / workers {
				result := c.probe(t.Context(), lab.ProbeOptions{Timeout: answerTimeout})
				if result.Outcome != lab.Answered {
					t.Errorf("%s: %v", c.describe, result)
					return
				}
				mu.Lock()
				counts[result.Answer.Server]++
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return counts
}

// chiSquared returns the test statistic for n equal counts.
func chiSquared(counts map[string]int, n int) float64 {
	total := 0
	for _, count := range counts {
		total += count
	}
	expected := float64(total) / float64(n)
	sum := float64(n-len(counts)) * expected // of servers without connections
	for _, count := range counts {
		difference := float64(count) - expected
		sum += difference * difference / expected
	}
	return sum
}

// example returns the block of code after a heading of a page in docs.
func example(t *testing.T, page, heading string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)## " + heading + ".*?```(?:yaml)?\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatalf("docs/%s has no example of %s", page, heading)
	}
	return string(block[1])
}

// TestCanary serves the example of docs/balance.md. The canary gets its share,
// also after a change of its weight.
func TestCanary(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	manifest := example(t, "balance.md", "A canary")
	for address, pod := range map[string]string{"10.244.1.5": "a1", "10.244.2.5": "b1", "10.244.3.5": "a2"} {
		if !strings.Contains(manifest, address) {
			t.Fatalf("the example has no endpoint %s", address)
		}
		manifest = strings.ReplaceAll(manifest, address, c.pods[pod].IPv4.String())
	}
	// 10.96.0.10, as in the example
	s := c.parse("{name: web, number: 10, protocols: TCP, spec: {ipFamilies: [IPv4]}}")
	for _, tt := range []struct {
		weight      string
		connections int
		low, high   float64 // share of the canary
	}{{"10", 10_000, 0.04, 0.06}, {"95", 1200, 0.27, 0.40}, {"0", 1200, 0, 0}} {
		c.write("web", strings.ReplaceAll(manifest, `nftproxy.io/weight: "10"`, `nftproxy.io/weight: "`+tt.weight+`"`))
		c.settle()
		counts := c.checks(s, "pod1 -> clusterIP => refused")[0].spread(t, tt.connections)
		if share := float64(counts["a2"]) / float64(tt.connections); share < tt.low || share > tt.high {
			t.Errorf("weight %s: got a share of %.3f, want %.3f to %.3f; connections: %v",
				tt.weight, share, tt.low, tt.high, counts)
		}
	}
}

// TestOwnRules shows that the rules of docs/neighbours.md see packets before
// they are translated, and that the proxy does not remove them.
func TestOwnRules(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.serve("{name: web, endpoints: a1 b1}")
	guarded := c.checks(s, "pod1 -> clusterIP => lost")
	rules := example(t, "neighbours.md", "Rules of your own")
	for f, addresses := range [][2]string{{"10.244.3.7", "10.96.0.10"}, {"fd00:244:3::7", "fd00:96::10"}} {
		rules = strings.ReplaceAll(rules, addresses[0], c.pods["pod1"].Addrs()[f].String())
		rules = strings.ReplaceAll(rules, addresses[1], s.address(lab.ServiceRanges(), family(f)).String())
	}
	c.nft(t, rules)
	guarded.run(t)
	c.checks(s, "pod2 node1 -> clusterIP => a1 b1 as itself").run(t)
	c.restart()
	guarded.run(t)
	c.nft(t, "delete table inet site")
	if out, err := c.Node1.Command(t.Context(), "conntrack", "--flush").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.checks(s, "pod1 -> clusterIP => a1 b1 as itself").run(t)
}
