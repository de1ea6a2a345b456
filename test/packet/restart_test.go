package packet

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// TestKilledWhileWriting shows that a proxy corrects its tables after an
// earlier one was killed while it wrote several hundred services.
func TestKilledWhileWriting(t *testing.T) {
	t.Parallel()
	c := &cluster{}
	c.setUp(t, defaultFlags()...)
	versions := []string{c.manyServices("a1 b1", "a1 a2 b2"), c.manyServices("a2 b1 b2", "b1")}
	first := c.parse(fmt.Sprintf("{name: many-0, number: %d}", manyNumbers))
	expects := []string{"pod1 -> clusterIP => a1 b1 as itself", "pod1 -> clusterIP => a2 b1 b2 as itself"}
	c.write("many", versions[0])
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	kill := func(within time.Duration) {
		time.Sleep(time.Duration(random.Int64N(int64(within) + 1)))
		c.kill()
	}
	start := func() {
		for _, p := range c.proxies {
			p.start(t)
		}
		c.proxies[0].awaitLog(t, "Rewriting")
	}

	// The time of an undisturbed write is the range for the time of a kill.
	start()
	begin := time.Now()
	c.proxies[0].awaitRules(t)
	cold := time.Since(begin)
	c.proxies[1].awaitRules(t)
	c.terminate()
	for _, p := range c.proxies {
		labtest.Run(t, p.at, "nft", "flush", "ruleset")
	}
	for range 4 {
		start()
		kill(cold)
	}
	c.start()
	c.expectFresh(t)
	c.checks(first, expects[0]).run(t)

	begin = time.Now()
	c.write("many", versions[1])
	c.settle()
	update := time.Since(begin)
	version := 1
	for range 3 {
		version = 1 - version
		c.write("many", versions[version])
		kill(update)
		c.start()
	}
	c.expectFresh(t)
	c.checks(first, expects[version]).run(t)
}

// manyNumbers is the number of the first of many services.
const manyNumbers = 1000

// manyServices returns the manifests of several hundred services with these
// endpoints in turn. A proxy needs several transactions for their rows.
func (c *cluster) manyServices(endpoints ...string) string {
	var text strings.Builder
	services := 100
	if testing.Short() {
		services = 60
	}
	for i := range services {
		absent, policy := "absent=30", "Cluster"
		if i == 0 { // clients connect to the first one
			absent = ""
		}
		if i%2 == 1 {
			policy = "Local"
		}
		text.WriteString(c.manifest(c.parse(fmt.Sprintf(`{name: many-%d, number: %d, endpoints: %s %s, spec: {
			internalTrafficPolicy: %s, ports: [{name: web, port: 80}, {name: admin, port: 8443, targetPort: 8081}]}}`,
			i, manyNumbers+i, endpoints[i%len(endpoints)], absent, policy))))
	}
	return text.String()
}
