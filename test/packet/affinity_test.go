package packet

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// affinityClients is the number of clients. With two families and two
// protocols they make four times as many choices, which practically never
// agree by chance.
const affinityClients = 10

// addClients adds clients outside the cluster and returns their names,
// separated by spaces.
func (c *cluster) addClients(n int) string {
	var names []string
	for i := range n {
		name := fmt.Sprintf("client-%d", i)
		c.addClient(name, [2]netip.Addr{
			lab.AddrIn(netip.MustParsePrefix("198.19.0.0/24"), i+1),
			lab.AddrIn(netip.MustParsePrefix("fd00:19::/64"), i+1),
		})
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// choice has the server of each client, by source address and protocol.
type choice map[string]string

// addEndpoints adds pods to both nodes in turn, and returns their names, each
// after a space.
func (c *cluster) addEndpoints(n int) (names string) {
	for i := range n {
		name := fmt.Sprint("e", i)
		c.addPod(c.Nodes()[i%2], lab.PodConfig{Name: name})
		names += " " + name
	}
	return names
}

// choose connects once from each origin to a destination, in all families and
// protocols.
func (c *cluster) choose(t *testing.T, s *service, origins, to string) choice {
	t.Helper()
	chosen := make(choice)
	for _, k := range c.checks(s, origins+" -> "+to+" => refused") {
		result := k.probe(t.Context(), lab.ProbeOptions{Timeout: answerTimeout})
		if result.Outcome != lab.Answered {
			t.Fatalf("%s: %v", k.describe, result)
		}
		chosen[fmt.Sprintf("%v %s", k.origin.source(k.family), k.network)] = result.Answer.Server
	}
	return chosen
}

// predict returns the choices that package explain predicts for known clients,
// or with a subject those that they make.
func (c *cluster) predict(t *testing.T, s *service, origins, to string) choice {
	t.Helper()
	if subject() != "" {
		return c.choose(t, s, origins, to)
	}
	predicted := make(choice)
	for _, k := range c.checks(s, origins+" -> "+to+" => refused") {
		p, err := k.predict(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", k.describe, err)
		}
		servers := slices.Sorted(maps.Keys(k.serversOf(p.sources)))
		predicted[fmt.Sprintf("%v %s", k.origin.source(k.family), k.network)] = strings.Join(servers, " ")
	}
	return predicted
}

// servers returns the chosen servers, sorted.
func (c choice) servers() string {
	return strings.Join(slices.Compact(slices.Sorted(maps.Values(c))), " ")
}

// moved returns the clients with another server.
func (c choice) moved(now choice) (moved []string) {
	for who, server := range c {
		if now[who] != server {
			moved = append(moved, fmt.Sprintf("%s: %s, was %s", who, now[who], server))
		}
	}
	slices.Sort(moved)
	return moved
}

// mustStay reports clients with another server.
func (c choice) mustStay(t *testing.T, when string, now choice) {
	t.Helper()
	if moved := c.moved(now); len(moved) > 0 {
		t.Errorf("%s: %d of %d clients moved: %s", when, len(moved), len(c), strings.Join(moved, ", "))
	}
}

// mustLeave reports clients that are still with the removed endpoint, and
// clients of other endpoints that moved.
func (c choice) mustLeave(t *testing.T, removed string, now choice) {
	t.Helper()
	for who, server := range c {
		if now[who] == removed || server != removed && now[who] != server {
			t.Errorf("%s: got %s, was %s, and %s is removed", who, now[who], server, removed)
		}
	}
}

// TestAffinity shows that with sessionAffinity ClientIP a client keeps its
// endpoint of a service port: at all addresses of the service, and when other
// endpoints change, the proxy restarts or its rules are repaired.
func TestAffinity(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	before := tables(t, c.Node1.Namespace)
	origins := c.addClients(affinityClients) + " pod1 node1 a1" // all through node1
	s := service{
		name: "sticky", spec: "type: LoadBalancer\nexternalIPs: {{.ExternalIPs}}\nsessionAffinity: ClientIP",
		ports:     []port{{"web", 80, firstTarget}, {"admin", 8443, secondTarget}},
		endpoints: "a1 a2 b1 b2",
	}
	c.serve("sticky", &s)
	first := c.choose(t, &s, origins, "clusterIP")
	if servers := strings.Fields(first.servers()); len(servers) < 2 {
		t.Errorf("got %s for all clients, want several endpoints", servers)
	}
	for _, to := range []string{"externalIP", "loadBalancerIP", "nodePort@node1", "clusterIP"} {
		first.mustStay(t, to, c.choose(t, &s, origins, to))
		first.mustStay(t, to+", as predicted", c.predict(t, &s, origins, to))
	}
	if len(first.moved(c.choose(t, &s, origins, "clusterIP:admin"))) == 0 {
		t.Error("all clients have the same endpoint of another port, want an independent choice")
	}

	t.Run("endpoint removed", func(t *testing.T) {
		s.slices = []slice{{endpoints: "a2 b1 b2"}}
		c.serve("sticky", &s)
		now := c.choose(t, &s, origins, "clusterIP")
		first.mustLeave(t, "a1", now)
		now.mustStay(t, "second choice", c.choose(t, &s, origins, "clusterIP"))
		first = now
	})
	t.Run("endpoint added", func(t *testing.T) {
		s.slices = []slice{{endpoints: "a1 a2 b1 b2"}}
		c.serve("sticky", &s)
		first.mustStay(t, "endpoint added", c.choose(t, &s, origins, "clusterIP"))
		added := c.choose(t, &s, "pod2", "clusterIP")
		added.mustStay(t, "new client", c.choose(t, &s, "pod2", "clusterIP"))
	})
	t.Run("endpoint terminates", func(t *testing.T) {
		s.slices = []slice{{endpoints: "a1 a2 b1 b2:terminating"}}
		c.serve("sticky", &s)
		now := c.choose(t, &s, origins, "clusterIP")
		first.mustLeave(t, "b2", now)
		first = now
	})
	t.Run("slices change", func(t *testing.T) {
		s.slices = []slice{{endpoints: "b1"}, {endpoints: "a2 a1"}}
		c.serve("sticky", &s)
		first.mustStay(t, "slices change", c.choose(t, &s, origins, "clusterIP"))
	})
	t.Run("timeout changes", func(t *testing.T) {
		s.spec += "\nsessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}"
		c.serve("sticky", &s)
		first.mustStay(t, "timeout changes", c.choose(t, &s, origins, "clusterIP"))
	})
	t.Run("other Services change", func(t *testing.T) {
		for i := range 3 {
			other := service{
				name: fmt.Sprint("other-", i), number: 40 + i, spec: "sessionAffinity: ClientIP", endpoints: "a1 b1",
			}
			c.serve("other", &other)
		}
		c.remove("other")
		first.mustStay(t, "other Services change", c.choose(t, &s, origins, "clusterIP"))
	})
	t.Run("restart", func(t *testing.T) {
		for _, p := range c.proxies {
			p.terminate(t)
		}
		first.mustStay(t, "no proxy runs", c.choose(t, &s, origins, "clusterIP"))
		c.start()
		first.mustStay(t, "restarted", c.choose(t, &s, origins, "clusterIP"))
		for _, p := range c.proxies {
			p.kill(t)
		}
		c.start()
		first.mustStay(t, "killed and restarted", c.choose(t, &s, origins, "clusterIP"))
	})
	t.Run("endpoints change while no proxy runs", func(t *testing.T) {
		c.terminate()
		s.slices = []slice{{endpoints: "a1 b1 b2"}}
		c.write("sticky", s.manifest(c))
		c.start()
		now := c.choose(t, &s, origins, "clusterIP")
		first.mustLeave(t, "a2", now)
		first = now
	})
	if subject() != "" {
		return
	}
	t.Run("repair", func(t *testing.T) {
		want := tables(t, c.Node1.Namespace)
		for _, family := range []string{"ip", "ip6"} {
			labtest.Run(t, c.Node1.Namespace, "nft", "flush", "chain", family, "kube-proxy", "services")
		}
		eventually(t, "repair", func() error {
			if tables(t, c.Node1.Namespace) != want {
				return errors.New("the tables are not restored")
			}
			return nil
		})
		first.mustStay(t, "repaired", c.choose(t, &s, origins, "clusterIP"))
	})
	t.Run("service deleted", func(t *testing.T) {
		c.remove("sticky")
		c.settle()
		if d := differences(before, tables(t, c.Node1.Namespace)); d != "" {
			t.Errorf("tables after the deletion:\n%s", d)
		}
		eventually(t, "chains of the deleted service", func() error {
			if strings.Contains(labtest.Run(t, c.Node1.Namespace, "nft", "list", "chains"), "affinity") {
				return errors.New("not all are deleted")
			}
			return nil
		})
	})
}

// TestAffinityOfMany shows affinity with many endpoints, which are in groups. A
// client keeps its endpoint when the first endpoints become many, when others
// change, when the proxy restarts, and when nft loads its own listing.
func TestAffinityOfMany(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	clients := strings.Fields(c.addClients(2 * affinityClients))
	early, late := strings.Join(clients[:affinityClients], " "), strings.Join(clients[affinityClients:], " ")
	s := service{
		name: "sticky", spec: "type: NodePort\nsessionAffinity: ClientIP", protocols: "TCP", endpoints: "a1 a2 b1",
	}
	c.serve("sticky", &s)
	first := c.choose(t, &s, early, "clusterIP")

	s.endpoints += c.addEndpoints(14) // 17 in all: two parts and a rest
	c.serve("sticky", &s)
	first.mustStay(t, "many endpoints", c.choose(t, &s, early, "clusterIP"))
	maps.Copy(first, c.choose(t, &s, late, "clusterIP"))
	if servers := strings.Fields(first.servers()); len(servers) < 6 {
		t.Errorf("got %s for all clients, want many endpoints", servers)
	}
	all := early + " " + late
	stay := func(when string) {
		t.Helper()
		first.mustStay(t, when, c.choose(t, &s, all, "clusterIP"))
		first.mustStay(t, when+", NodePort", c.choose(t, &s, all, "nodePort@node1"))
		first.mustStay(t, when+", as predicted", c.predict(t, &s, all, "clusterIP"))
	}
	stay("second choice")

	removed := slices.Sorted(maps.Values(first))[len(first)-1] // one of the endpoints in groups
	s.endpoints = strings.ReplaceAll(s.endpoints+" ", " "+removed+" ", " ")
	c.serve("sticky", &s)
	now := c.choose(t, &s, all, "clusterIP")
	first.mustLeave(t, removed, now)
	first = now
	stay("endpoint removed")

	c.terminate()
	c.start()
	stay("restarted")
	c.terminate()
	listed := labtest.Run(t, c.Node1.Namespace, "nft", "list", "ruleset")
	load := c.Node1.Command(t.Context(), "nft", "-f", "-")
	load.Stdin = strings.NewReader("flush ruleset\n" + listed)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("load the listing: %v\n%s", err, out)
	}
	c.start()
	stay("listing loaded")
}

// TestAffinityLocal shows affinity with externalTrafficPolicy Local: each
// frontend has the right endpoints, and each client keeps its endpoint.
func TestAffinityLocal(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	clients := strings.Fields(c.addClients(3 * affinityClients))
	s := service{
		name: "sticky", spec: "type: LoadBalancer\nexternalTrafficPolicy: Local\nsessionAffinity: ClientIP",
		endpoints: "a1 a2 b1 b2",
	}
	c.serve("sticky", &s)
	for i, test := range []struct{ to, servers string }{
		{"loadBalancerIP", "^a1 a2$"},
		{"nodePort@node2", "^b1 b2$"},
		{"clusterIP", "^a.*b[12]$"},
	} {
		some := strings.Join(clients[i*affinityClients:][:affinityClients], " ")
		first := c.choose(t, &s, some, test.to)
		if got := first.servers(); !regexp.MustCompile(test.servers).MatchString(got) {
			t.Errorf("%s: got %s, want %s", test.to, got, test.servers)
		}
		first.mustStay(t, test.to, c.choose(t, &s, some, test.to))
		if test.to == "loadBalancerIP" {
			// The clients keep their endpoints at other frontends.
			first.mustStay(t, "NodePort", c.choose(t, &s, some, "nodePort@node1"))
			first.mustStay(t, "ClusterIP", c.choose(t, &s, some, "clusterIP"))
		}
	}
	// Pods and the node can use all endpoints.
	for range 3 {
		pods := c.choose(t, &s, "pod1 a1 a2 node1", "loadBalancerIP")
		pods.mustStay(t, "pods", c.choose(t, &s, "pod1 a1 a2 node1", "nodePort@node1"))
	}
	c.checks(&s, "client -> clusterIP:9 => refused").run(t)
}

// TestAffinityTimeout shows that affinity ends after the timeout since the
// last connection, not the first.
func TestAffinityTimeout(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	clients := c.addClients(affinityClients)
	const timeout = 5 * time.Second
	s := service{
		name: "sticky",
		spec: "sessionAffinity: ClientIP\nsessionAffinityConfig: {clientIP: {timeoutSeconds: 5}}", protocols: "UDP",
		// With many endpoints, a client without affinity rarely gets the same
		// one.
		endpoints: "a1 a2 b1 b2 pod1 pod2",
	}
	c.serve("sticky", &s)
	last := time.Now()
	first := c.choose(t, &s, clients, "clusterIP")
	stayed := time.Duration(0)
	for begin := time.Now(); stayed < 2*timeout; stayed = time.Since(begin) {
		time.Sleep(timeout / 5)
		next := time.Now()
		now := c.choose(t, &s, clients, "clusterIP")
		if time.Since(last) > timeout-time.Second {
			// The machine was too slow: a choice came after the timeout.
			first, begin = now, time.Now()
		}
		last = next
		first.mustStay(t, "before the timeout", now)
		if t.Failed() {
			return
		}
	}
	time.Sleep(timeout + 2*time.Second)
	if len(first.moved(c.choose(t, &s, clients, "clusterIP"))) == 0 {
		t.Error("all clients have their endpoints after the timeout, want other ones")
	}
}

// TestAffinityFull shows a service with more clients than its affinity set has
// room for, with few endpoints and with endpoints in groups. Clients outside
// the set are served evenly and without affinity; clients in the set, and
// clients of a service with another set, keep their endpoints. The test reduces
// the size of the set after the proxy has ended.
func TestAffinityFull(t *testing.T) {
	t.Parallel()
	t.Run("few endpoints", func(t *testing.T) {
		t.Parallel()
		testAffinityFull(t, 0, 1)
	})
	t.Run("groups", func(t *testing.T) {
		t.Parallel()
		testAffinityFull(t, 13, 2) // 17 endpoints: two parts and a rest
	})
}

// testAffinityFull adds a number of endpoints. A client has a number of rows in
// the set.
func testAffinityFull(t *testing.T, more, rows int) {
	c := newCluster(t)
	clients := c.addClients(affinityClients)
	sticky := func(name string) *service {
		return &service{
			name: name, spec: "type: NodePort\nsessionAffinity: ClientIP", protocols: "TCP",
			endpoints: "a1 a2 b1 b2",
		}
	}
	flooded := sticky("flooded")
	flooded.endpoints += c.addEndpoints(more)
	others := []*service{sticky("calm-1"), sticky("calm-2"), sticky("calm-3"), sticky("calm-4")}
	c.serve("sticky", append(others, flooded)...)
	c.terminate()
	listed := labtest.Run(t, c.Node1.Namespace, "nft", "list", "ruleset")
	const room = 4 // clients
	load := c.Node1.Command(t.Context(), "nft", "-f", "-")
	small, calm := withRoom(t, listed, flooded, others, room*rows)
	load.Stdin = strings.NewReader("flush ruleset\n" + small)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("load the listing: %v\n%s", err, out)
	}
	rounds := 8 + 2*more
	first := c.choose(t, flooded, clients, "clusterIP")
	loyal := maps.Clone(first)
	calmFirst := c.choose(t, calm, clients, "clusterIP")
	picks := make(map[string]int)
	for range rounds {
		for who, server := range c.choose(t, flooded, clients, "clusterIP") {
			if loyal[who] != server {
				delete(loyal, who)
			}
			picks[server]++
		}
		calmFirst.mustStay(t, "calm", c.choose(t, calm, clients, "clusterIP"))
	}
	// Each family has its own set. A client outside the set practically never
	// gets the same endpoint in all rounds. If two clients race, each can have
	// one of its rows.
	if n := len(loyal); n < 2*room/rows || n > 2*room {
		t.Errorf("%d of %d clients kept their endpoints, want %d", n, len(first), 2*room)
	}
	// The other 12 clients make 24 choices of each endpoint in 8 rounds.
	for _, server := range strings.Fields(flooded.endpoints) {
		known := 0
		for _, s := range loyal {
			if s == server {
				known++
			}
		}
		if n := picks[server] - rounds*known; n < 6 {
			t.Errorf("choices of %s by clients outside the set: got %d, want about 24: %v", server, n, picks)
		}
	}
}

// withRoom returns the listing with another size of the affinity sets of a
// service, and one of the others that has other sets. A random seed chooses the
// sets of each family.
func withRoom(t *testing.T, listing string, s *service, others []*service, room int) (string, *service) {
	t.Helper()
	tables := regexp.MustCompile(`(?m)^table `).Split(listing, -1)[1:]
	setOf := func(table, service string) string {
		chain := regexp.MustCompile(`chain affinity\.default\.` + service + `\.[^}]*@(sticky-clients-\d+) `)
		if m := chain.FindStringSubmatch(table); m != nil {
			return m[1]
		}
		return ""
	}
	out := ""
	for _, table := range tables {
		if set := setOf(table, s.name); set != "" {
			others = slices.DeleteFunc(others, func(o *service) bool { return setOf(table, o.name) == set })
			size := regexp.MustCompile(`(set ` + set + ` \{[^}]*size )262144`)
			if !size.MatchString(table) {
				t.Fatalf("no set %s of the expected size in\n%s", set, table)
			}
			table = size.ReplaceAllString(table, fmt.Sprintf("${1}%d", room))
		}
		out += "table " + table
	}
	if out == listing || len(others) == 0 {
		t.Fatalf("no affinity chain of %s, or no other service with another set, in\n%s", s.name, listing)
	}
	return out, others[0]
}
