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
)

// affinityClients is how many clients there are. With each family and protocol they make four times as many choices
// between endpoints: that all come out the same by chance does not happen.
const affinityClients = 10

// addClients adds many clients outside of the cluster, and returns their names, separated by spaces.
func (c *cluster) addClients(n int) string {
	var names []string
	for i := range n {
		name := fmt.Sprintf("client-%d", i)
		c.addClient(name, [2]netip.Addr{
			addrIn(netip.MustParsePrefix("198.19.0.0/24"), i+1),
			addrIn(netip.MustParsePrefix("fd00:19::/64"), i+1),
		})
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// choice tells which server each client got, by client, family and protocol.
type choice map[string]string

// choose connects once from each origin, in both families and all protocols, to a destination.
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

// servers returns the servers that were chosen, sorted.
func (c choice) servers() string {
	return strings.Join(slices.Compact(slices.Sorted(maps.Values(c))), " ")
}

// moved returns those whose choice differs.
func (c choice) moved(now choice) (moved []string) {
	for who, server := range c {
		if now[who] != server {
			moved = append(moved, fmt.Sprintf("%s: %s, was %s", who, now[who], server))
		}
	}
	slices.Sort(moved)
	return moved
}

// mustStay reports those whose choice differs.
func (c choice) mustStay(t *testing.T, when string, now choice) {
	t.Helper()
	if moved := c.moved(now); len(moved) > 0 {
		t.Errorf("%s: %d of %d moved: %s", when, len(moved), len(c), strings.Join(moved, ", "))
	}
}

// TestAffinity shows that with sessionAffinity ClientIP a client stays with its endpoint of a service port: whichever address of the
// service it uses, through changes of other endpoints, restarts of the proxy and repairs of its rules.
func TestAffinity(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	before := tables(t, c.Node1.Namespace)
	origins := c.addClients(affinityClients) + " pod1 node1 a1" // all by way of node1
	s := service{
		name: "sticky", spec: "type: LoadBalancer\nexternalIPs: {{.ExternalIPs}}\nsessionAffinity: ClientIP",
		ports:  []port{{"web", 80, firstTarget}, {"admin", 8443, secondTarget}},
		slices: []slice{{endpoints: "a1 a2 b1 b2"}},
	}
	c.serve("sticky", &s)
	first := c.choose(t, &s, origins, "clusterIP")
	if servers := strings.Fields(first.servers()); len(servers) < 2 {
		t.Errorf("all clients chose %s", servers)
	}
	for _, to := range []string{"externalIP", "loadBalancerIP", "nodePort@node1", "clusterIP"} {
		first.mustStay(t, to, c.choose(t, &s, origins, to))
	}
	if len(first.moved(c.choose(t, &s, origins, "clusterIP:admin"))) == 0 {
		t.Error("all clients got the same endpoint of another port: ports depend on each other")
	}

	t.Run("endpoint goes", func(t *testing.T) {
		s.slices = []slice{{endpoints: "a2 b1 b2"}}
		c.serve("sticky", &s)
		now := c.choose(t, &s, origins, "clusterIP")
		for who, server := range first {
			switch {
			case server != "a1" && now[who] != server:
				t.Errorf("%s moved from %s to %s", who, server, now[who])
			case now[who] == "a1":
				t.Errorf("%s is still with the endpoint that went", who)
			}
		}
		now.mustStay(t, "settled", c.choose(t, &s, origins, "clusterIP"))
		first = now
	})
	t.Run("endpoint comes", func(t *testing.T) {
		s.slices = []slice{{endpoints: "a1 a2 b1 b2"}}
		c.serve("sticky", &s)
		first.mustStay(t, "endpoint came", c.choose(t, &s, origins, "clusterIP"))
		newcomers := c.choose(t, &s, "pod2", "clusterIP")
		newcomers.mustStay(t, "newcomer", c.choose(t, &s, "pod2", "clusterIP"))
	})
	t.Run("endpoint terminates", func(t *testing.T) {
		s.slices = []slice{{endpoints: "a1 a2 b1 b2:terminating"}}
		c.serve("sticky", &s)
		now := c.choose(t, &s, origins, "clusterIP")
		for who, server := range first {
			if (server == "b2") == (now[who] == server) {
				t.Errorf("%s is with %s, was with %s", who, now[who], server)
			}
		}
		first = now
	})
	t.Run("another slice", func(t *testing.T) {
		s.slices = []slice{{endpoints: "b1"}, {endpoints: "a2 a1"}}
		c.serve("sticky", &s)
		first.mustStay(t, "slices changed", c.choose(t, &s, origins, "clusterIP"))
	})
	t.Run("timeout changes", func(t *testing.T) {
		s.spec += "\nsessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}"
		c.serve("sticky", &s)
		first.mustStay(t, "timeout changed", c.choose(t, &s, origins, "clusterIP"))
	})
	t.Run("other Services change", func(t *testing.T) {
		for i := range 3 {
			other := service{
				name: fmt.Sprint("other-", i), number: 40 + i, spec: "sessionAffinity: ClientIP", slices: []slice{{endpoints: "a1 b1"}},
			}
			c.serve("other", &other)
		}
		c.remove("other")
		first.mustStay(t, "others changed", c.choose(t, &s, origins, "clusterIP"))
	})
	t.Run("restart", func(t *testing.T) {
		for _, p := range c.proxies {
			p.terminate(t)
		}
		first.mustStay(t, "without proxy", c.choose(t, &s, origins, "clusterIP"))
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
		for who, server := range first {
			if (server == "a2") == (now[who] == server) {
				t.Errorf("%s is with %s, was with %s", who, now[who], server)
			}
		}
		first = now
	})
	t.Run("repair", func(t *testing.T) {
		want := tables(t, c.Node1.Namespace)
		for _, family := range []string{"ip", "ip6"} {
			run(t, c.Node1.Namespace, "nft", "flush", "chain", family, "kube-proxy", "services")
		}
		eventually(t, "repair", func() error {
			if tables(t, c.Node1.Namespace) != want {
				return errors.New("the tables are not as they were")
			}
			return nil
		})
		first.mustStay(t, "repaired", c.choose(t, &s, origins, "clusterIP"))
	})
	t.Run("service deleted", func(t *testing.T) {
		c.remove("sticky")
		c.settle()
		if d := differences(before, tables(t, c.Node1.Namespace)); d != "" {
			t.Errorf("it left:\n%s", d)
		}
		eventually(t, "chains of the deleted service", func() error {
			if strings.Contains(run(t, c.Node1.Namespace, "nft", "list", "chains"), "affinity") {
				return errors.New("there are still some")
			}
			return nil
		})
	})
}

// TestAffinityLocal shows affinity together with externalTrafficPolicy Local: each way to the service leads to the endpoints that it should, and always
// to the same one.
func TestAffinityLocal(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	clients := strings.Fields(c.addClients(3 * affinityClients))
	s := service{
		name: "sticky", spec: "type: LoadBalancer\nexternalTrafficPolicy: Local\nsessionAffinity: ClientIP",
		slices: []slice{{endpoints: "a1 a2 b1 b2"}},
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
			t.Errorf("%s: chosen were %s, want %s", test.to, got, test.servers)
		}
		first.mustStay(t, test.to, c.choose(t, &s, some, test.to))
		if test.to == "loadBalancerIP" {
			// Who has been there stays also on other ways to the service.
			first.mustStay(t, "NodePort", c.choose(t, &s, some, "nodePort@node1"))
			first.mustStay(t, "ClusterIP", c.choose(t, &s, some, "clusterIP"))
		}
	}
	// Pods and the node itself may use all endpoints.
	for range 3 {
		pods := c.choose(t, &s, "pod1 a1 a2 node1", "loadBalancerIP")
		pods.mustStay(t, "pods", c.choose(t, &s, "pod1 a1 a2 node1", "nodePort@node1"))
	}
	c.checks(&s, "client -> clusterIP:9 => refused").run(t)
}

// TestAffinityTimeout shows that affinity ends some time after the last connection, not the first.
func TestAffinityTimeout(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	clients := c.addClients(affinityClients)
	const timeout = 5 * time.Second
	s := service{
		name: "sticky",
		spec: "sessionAffinity: ClientIP\nsessionAffinityConfig: {clientIP: {timeoutSeconds: 5}}", protocols: "UDP",
		// Many endpoints: a client that forgets hardly gets the same one again.
		slices: []slice{{endpoints: "a1 a2 b1 b2 pod1 pod2"}},
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
			// This machine is too slow for the question. Begin again.
			first, begin = now, time.Now()
		}
		last = next
		first.mustStay(t, "in time", now)
		if t.Failed() {
			return
		}
	}
	time.Sleep(timeout + 2*time.Second)
	if len(first.moved(c.choose(t, &s, clients, "clusterIP"))) == 0 {
		t.Error("after the timeout all clients are still with their endpoints")
	}
}

// TestAffinityFull shows a flood of clients of one Service: new clients are served
// without affinity and evenly, known clients keep their endpoints, and so do all
// clients of a Service with another set. The set that the proxy has left gets room
// for few clients.
func TestAffinityFull(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	clients := c.addClients(affinityClients)
	sticky := func(name string) *service {
		return &service{
			name: name, spec: "type: NodePort\nsessionAffinity: ClientIP", protocols: "TCP",
			slices: []slice{{endpoints: "a1 a2 b1 b2"}},
		}
	}
	flooded, calm := sticky("flooded"), sticky("calm")
	c.serve("sticky", flooded, calm)
	c.terminate()
	listed := run(t, c.Node1.Namespace, "nft", "list", "ruleset")
	const room = 4
	load := c.Node1.Command(t.Context(), "nft", "-f", "-")
	load.Stdin = strings.NewReader("flush ruleset\n" + withRoom(t, listed, "flooded", "calm", room))
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("load the listing: %v\n%s", err, out)
	}
	const rounds = 8
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
	// Each family has a set of its own. A client that is not in it changes the
	// endpoint sooner or later.
	if n := len(loyal); n < 2*room || n == len(first) {
		t.Errorf("%d of %d clients stayed with their endpoints, want those for whom there is room: %d", n, len(first), 2*room)
	}
	// The others make 12 choices in each of 8 rounds: 24 for each endpoint.
	for _, server := range strings.Fields("a1 a2 b1 b2") {
		known := 0
		for _, s := range loyal {
			if s == server {
				known++
			}
		}
		if n := picks[server] - rounds*known; n < 6 {
			t.Errorf("clients without room chose %s %d times, want about 24: %v", server, n, picks)
		}
	}
}

// withRoom returns a listing in which the affinity sets of one Service have room
// for few clients. Those of the other Service must be other sets.
func withRoom(t *testing.T, listing, service, other string, room int) string {
	t.Helper()
	setOf := func(service string) string {
		m := regexp.MustCompile(`chain affinity\.default\.` + service + `\.[^}]*@(clients-\d+) `).FindStringSubmatch(listing)
		if m == nil {
			t.Fatalf("no affinity chain of %s in\n%s", service, listing)
		}
		return m[1]
	}
	set := setOf(service)
	if set == setOf(other) {
		t.Fatalf("%s and %s share %s", service, other, set)
	}
	size := regexp.MustCompile(`(set ` + set + ` \{[^}]*size )262144`)
	if n := len(size.FindAllString(listing, -1)); n != 2 {
		t.Fatalf("%d sets %s of the expected size in\n%s", n, set, listing)
	}
	return size.ReplaceAllString(listing, fmt.Sprintf("${1}%d", room))
}
