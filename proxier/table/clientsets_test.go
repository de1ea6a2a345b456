package table

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// serve gives a service port an affinity set, as a commit of its plan does.
func (c *clientSets) serve(port string) uint8 {
	set := c.propose(port)
	c.commit(port, set)
	return set
}

// setsOf returns the sets of n service ports of a namespace.
func setsOf(c *clientSets, namespace string, n int) map[uint8]bool {
	sets := make(map[uint8]bool)
	for i := range n {
		sets[c.serve(fmt.Sprintf("%s.svc-%d.tcp", namespace, i))] = true
	}
	return sets
}

// A namespace with many Services has few affinity sets, so that its clients
// cannot fill those of others. After 56 such namespaces, the next one gets a
// set that no other one has.
func TestClientSetsOfNamespaces(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		c, taken := newClientSets(1+seed), make(map[uint8]string)
		for i := range 57 {
			namespace, services := fmt.Sprint("tenant-", i), 300
			if i == 56 {
				namespace, services = "victim", 1
			}
			sets := setsOf(c, namespace, services)
			if len(sets) > 7 {
				t.Errorf("seed %d: Services of %s have %d sets, want at most 7", seed, namespace, len(sets))
			}
			for set := range sets {
				if taken[set] != "" {
					t.Fatalf("seed %d: %s shares set %d with %s", seed, namespace, set, taken[set])
				}
				taken[set] = namespace
			}
		}
	}
}

// When no set is free, a new namespace has one set for all its Services. When
// other namespaces go, it is not moved, but gets free sets for new Services.
func TestClientSetsWhenNoneIsFree(t *testing.T) {
	c := newClientSets(1)
	for i := range ruleset.ClientSets {
		c.adopt(fmt.Sprintf("tenant.svc-%d.tcp", i), uint8(i))
	}
	if sets := setsOf(c, "late", 300); len(sets) != 1 {
		t.Errorf("got %d sets of a namespace, want 1", len(sets))
	}
	before := maps.Clone(c.sets)
	for port := range before {
		if namespaceOf(port) == "tenant" {
			c.leave(port)
		}
	}
	c.forgetOld(time.Now().Add(2 * absenceTime))
	for port, set := range before {
		if namespaceOf(port) == "late" && c.propose(port) != set {
			t.Fatalf("%s moved from set %d to %d", port, set, c.propose(port))
		}
	}
	if got := c.serve("late.new.tcp"); len(c.users[got]) != 1 || c.users[got]["late"] != 1 {
		t.Errorf("got set %d with users %v, want a free set", got, c.users[got])
	}
}

// A namespace that replaces its Services does not get to know other sets, if
// none is free.
func TestClientSetsOfReplacedServices(t *testing.T) {
	c, sets := newClientSets(1), make(map[uint8]bool)
	for i := range ruleset.ClientSets {
		c.adopt(fmt.Sprintf("other.svc-%d.tcp", i), uint8(i))
	}
	for i := range 100 {
		port := fmt.Sprintf("tenant.svc-%d.tcp", i)
		sets[c.serve(port)] = true
		c.leave(port)
		c.forgetOld(time.Now().Add(2 * absenceTime))
	}
	if len(sets) != 1 {
		t.Errorf("got %d sets, want 1", len(sets))
	}
}

// The sets of an earlier process are known until everything was written, and
// until a service port that could not be written is served.
func TestClientSetsOfEarlierProcess(t *testing.T) {
	c := newClientSets(1)
	for _, port := range []string{"ns.gone.tcp", "ns.served.tcp", "ns.refused.tcp"} {
		c.adopt(port, 7)
	}
	c.commit("ns.served.tcp", c.propose("ns.served.tcp"))
	c.forgetOld(time.Now().Add(time.Hour))
	c.forgetEarlier(map[string]bool{"ns.refused.tcp": true})
	want := map[string]uint8{"ns.served.tcp": 7, "ns.refused.tcp": 7}
	if !maps.Equal(c.sets, want) || len(c.until) != 1 {
		t.Errorf("got %v, %d of them for some time, want %v, 1", c.sets, len(c.until), want)
	}
}

// After a random history of plans, commits, removals, previews and restarts, a
// service port that stayed has its set, and the counts of users are right.
func TestClientSetsHistory(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := newClientSets(1)
	served := make(map[string]uint8) // committed
	for range 5000 {
		port := fmt.Sprintf("ns-%d.svc-%d.tcp", r.IntN(20), r.IntN(30))
		set, ok := served[port]
		switch r.IntN(10) {
		case 0, 1, 2: // a plan that is never committed
			if !ok {
				c.propose(port)
			}
		case 3, 4, 5:
			if ok {
				c.leave(port)
				c.commit(port, set)
				break
			}
			served[port] = c.serve(port)
		case 6, 7:
			if ok {
				delete(served, port)
				c.leave(port)
			}
		case 8:
			p := c.preview()
			if got := p.propose(port); ok && got != set || p.propose(port) != got {
				t.Fatalf("%s: a preview has set %d, want %d", port, got, set)
			}
		case 9:
			c.forgetOld(time.Now().Add(time.Duration(r.IntN(3)) * proposalTime))
			if r.IntN(20) == 0 { // a restart
				c = newClientSets(r.Uint64())
				for port, set := range served {
					c.adopt(port, set)
				}
				waiting := make(map[string]bool)
				for port := range served {
					if r.IntN(2) == 0 {
						waiting[port] = true
						continue
					}
					c.commit(port, c.propose(port))
				}
				c.forgetEarlier(waiting)
			}
		}
		users := 0
		for port, set := range served {
			if got := c.sets[port]; got != set {
				t.Fatalf("%s: got set %d, want %d", port, got, set)
			}
		}
		for _, u := range c.users {
			for _, n := range u {
				users += n
			}
		}
		if users != len(c.sets) || len(c.sets) < len(served) || len(c.until) > len(c.sets) {
			t.Fatalf("got %d users of %d service ports, %d of them for some time", users, len(c.sets), len(c.until))
		}
	}
	for port := range served {
		c.leave(port)
	}
	c.forgetOld(time.Now().Add(time.Hour))
	c.forgetEarlier(nil)
	if len(c.sets)+len(c.until) != 0 {
		t.Errorf("%v and %v are left", c.sets, c.until)
	}
}
