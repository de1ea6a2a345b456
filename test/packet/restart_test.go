package packet

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// TestRestart shows that no connection attempt fails while proxies end and
// restart.
func TestRestart(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := service{name: "web", spec: "type: NodePort\nexternalIPs: {{.ExternalIPs}}", endpoints: "a1 a2 b1"}
	c.serve("web", &s)
	w := c.startTraffic(t, &s, `
		client -> nodePort@node1
		pod1 node1 -> clusterIP
		pod2 -> externalIP
	`, answerTimeout)
	for _, step := range []struct {
		name  string
		end   func(*proxy)
		flags []string
	}{
		{"SIGTERM", func(p *proxy) { p.terminate(t) }, nil},
		{"SIGKILL", func(p *proxy) { p.kill(t) }, nil},
		{"other flags", func(p *proxy) { p.terminate(t) }, []string{"--masquerade-all"}},
		{"more addresses", func(p *proxy) { p.terminate(t) }, []string{"--nodeport-addresses", "0.0.0.0/0,::/0"}},
		{"default flags", func(p *proxy) { p.terminate(t) }, nil},
	} {
		w.pass(2)
		before := tables(t, c.Node1.Namespace)
		for _, p := range c.proxies {
			step.end(p)
		}
		w.pass(5) // without a proxy
		if d := differences(before, tables(t, c.Node1.Namespace)); d != "" {
			t.Errorf("%s: tables changed when the proxy ended:\n%s", step.name, d)
		}
		for _, p := range c.proxies {
			p.flags = append(defaultFlags(), step.flags...)
		}
		c.start()
		w.pass(5)
	}
	w.mustNotFail()
	c.expectFresh(t, "after all restarts")
}

// TestKilledWhileWriting shows that a proxy corrects its tables after an
// earlier one was killed while it wrote several hundred services.
func TestKilledWhileWriting(t *testing.T) {
	t.Parallel()
	c := newIdleCluster(t, defaultFlags()...)
	versions := []string{manyServices(c, "a1 b1", "a1 a2 b2"), manyServices(c, "a2 b1 b2", "b1")}
	expects := []string{"pod1 -> clusterIP => a1 b1 as itself", "pod1 -> clusterIP => a2 b1 b2 as itself"}
	c.write("many", versions[0])
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	kill := func(within time.Duration) {
		time.Sleep(time.Duration(random.Int64N(int64(within) + 1)))
		for _, p := range c.proxies {
			p.kill(t)
		}
	}
	expectTables := func(when string, version int) {
		t.Helper()
		c.expectFresh(t, when)
		first := service{name: "many-0", number: manyNumbers}
		first.setDefaults(c)
		c.checks(&first, expects[version]).run(t)
	}

	// The time of an undisturbed write is the range for the time of a kill.
	const writing = "Rewriting"
	for _, p := range c.proxies {
		p.start(t)
	}
	c.proxies[0].awaitLog(t, writing)
	begin := time.Now()
	c.proxies[0].awaitRules(t)
	cold := time.Since(begin)
	c.proxies[1].awaitRules(t)
	c.terminate()
	for _, p := range c.proxies {
		labtest.Run(t, p.at, "nft", "flush", "ruleset")
	}
	for range 4 {
		for _, p := range c.proxies {
			p.start(t)
		}
		c.proxies[0].awaitLog(t, writing)
		kill(cold)
	}
	c.start()
	expectTables("killed during starts", 0)

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
	expectTables("killed during updates", version)
}

// manyNumbers is the number of the first of many services.
const manyNumbers = 1000

// manyServices returns the manifests of several hundred services with these
// endpoints in turn. A proxy needs several transactions for their rows.
func manyServices(c *cluster, endpoints ...string) string {
	var text strings.Builder
	services := 200
	if testing.Short() {
		services = 60
	}
	for i := range services {
		s := service{
			name: fmt.Sprintf("many-%d", i), number: manyNumbers + i,
			ports:  []port{{"web", 80, firstTarget}, {"admin", 8443, secondTarget}},
			slices: []slice{{endpoints: endpoints[i%len(endpoints)]}},
		}
		if i > 0 { // clients connect to the first one
			s.slices[0].absent = 30
		}
		if i%2 == 1 {
			s.spec = "type: ClusterIP\ninternalTrafficPolicy: Local"
		}
		text.WriteString(s.manifest(c))
	}
	return text.String()
}

// TestUnchanged shows that proxies do not write while nothing changes,
// neither in a periodic sync.
func TestUnchanged(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.serve("web", &service{name: "web", spec: "type: NodePort", endpoints: "a1 b1"})
	// A change of one family only.
	c.serve("ipv4", &service{name: "ipv4", families: "IPv4", endpoints: "a1 b1"})
	before := []uint32{generation(t, c.proxies[0]), generation(t, c.proxies[1])}
	const duration = 40 * time.Second // the sync period is 30 s
	for end := time.Now().Add(duration); time.Now().Before(end) && !t.Failed(); time.Sleep(time.Second) {
		for i, p := range c.proxies {
			if now := generation(t, p); now != before[i] {
				t.Errorf("%s: got generation %d, want %d", p.node, now, before[i])
			}
		}
	}
}
