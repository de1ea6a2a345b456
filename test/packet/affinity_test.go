package packet

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAffinityTimeout shows that affinity ends after the timeout since the
// last connection, not the first.
func TestAffinityTimeout(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	clients := c.addClients(10)
	const timeout = 5 * time.Second
	// With many endpoints, a client without affinity rarely gets the same one.
	s := c.serve(`{name: sticky, protocols: UDP, endpoints: a1 a2 b1 b2 pod1 pod2,
		spec: {sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 5}}}}`)
	all := c.checks(s, clients+" -> clusterIP => refused")
	last := time.Now()
	first := all.choose(t)
	stayed := time.Duration(0)
	for begin := time.Now(); stayed < 2*timeout; stayed = time.Since(begin) {
		time.Sleep(timeout / 5)
		next := time.Now()
		now := all.choose(t)
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
	if len(first.moved(all.choose(t))) == 0 {
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
	for name, test := range map[string]struct {
		more int // endpoints
		rows int // of a client in the set
	}{
		"few endpoints": {0, 1},
		"groups":        {13, 2}, // 17 endpoints: two parts and a rest
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testAffinityFull(t, test.more, test.rows)
		})
	}
}

func testAffinityFull(t *testing.T, more, rows int) {
	c := newCluster(t)
	clients := c.addClients(10)
	endpoints := "a1 a2 b1 b2 " + c.addEndpoints(more)
	const sticky = "{name: %s, protocols: TCP, spec: {type: NodePort, sessionAffinity: ClientIP}, endpoints: %s}"
	others := []string{"calm-1", "calm-2", "calm-3", "calm-4"}
	for _, name := range others {
		c.apply(fmt.Sprintf(sticky, name, "a1 a2 b1 b2"))
	}
	c.serve(fmt.Sprintf(sticky, "flooded", endpoints))
	c.terminate()
	const room = 4 // clients
	small, calm := withRoom(t, c.nft(t, "list ruleset"), others, room*rows)
	c.nft(t, "flush ruleset\n"+small)

	rounds := 8 + 2*more
	flooded := c.checks(c.service("flooded"), clients+" -> clusterIP => refused")
	calmed := c.checks(c.service(calm), clients+" -> clusterIP => refused")
	first, calmFirst := flooded.choose(t), calmed.choose(t)
	loyal := maps.Clone(first)
	picks := make(map[string]int)
	for range rounds {
		for who, server := range flooded.choose(t) {
			if loyal[who] != server {
				delete(loyal, who)
			}
			picks[server]++
		}
		calmFirst.mustStay(t, "calm", calmed.choose(t))
	}
	// Each family has its own set. A client outside the set practically never
	// gets the same endpoint in all rounds. If two clients race, each can have
	// one of its rows.
	if n := len(loyal); n < 2*room/rows || n > 2*room {
		t.Errorf("%d of %d clients kept their endpoints, want %d", n, len(first), 2*room)
	}
	// The other 12 clients make 24 choices of each endpoint in 8 rounds.
	for _, server := range strings.Fields(endpoints) {
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

// withRoom returns the listing with another size of the affinity sets of the
// Service flooded, and one of the others that has other sets. A random seed
// chooses the sets of each family.
func withRoom(t *testing.T, listing string, others []string, room int) (out, calm string) {
	t.Helper()
	setOf := func(table, service string) string {
		chain := regexp.MustCompile(`chain affinity\.default\.` + service + `\.[^}]*@(sticky-clients-\d+) `)
		if m := chain.FindStringSubmatch(table); m != nil {
			return m[1]
		}
		return ""
	}
	for _, table := range regexp.MustCompile(`(?m)^table `).Split(listing, -1)[1:] {
		if set := setOf(table, "flooded"); set != "" {
			others = slices.DeleteFunc(others, func(o string) bool { return setOf(table, o) == set })
			size := regexp.MustCompile(`(set ` + set + ` \{[^}]*size )262144`)
			table = size.ReplaceAllString(table, fmt.Sprintf("${1}%d", room))
		}
		out += "table " + table
	}
	if strings.Count(out, fmt.Sprintf("size %d\n", room)) != 2 || len(others) == 0 {
		t.Fatalf("no affinity sets of flooded in both families, or no other service with another set, in\n%s", out)
	}
	return out, others[0]
}
