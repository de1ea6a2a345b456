package packet

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
)

// choice has the server of each client, by source address and protocol.
type choice map[string]string

// choiceSteps returns the steps that compare the endpoints of clients.
func (s *story) choiceSteps() map[string]any {
	return map[string]any{"choose": s.choose, "stay": s.stay, "leave": s.leave, "moved": s.moved,
		"loyal": s.loyal, "spread": s.spread}
}

// choose connects once from each client, and returns the endpoints.
func (s *story) choose(name string, clients ...string) string {
	if s.choices[name] == nil {
		s.choices[name] = choice{}
	}
	chosen := s.expectations(s.allClients(clients)...).choose(s.t)
	maps.Copy(s.choices[name], chosen)
	return chosen.servers()
}

// stay connects again: each client must have its endpoint, as predicted.
func (s *story) stay(name string, clients ...string) {
	all := s.expectations(s.allClients(clients)...)
	s.choices[name].mustStay(s.t, "now", all.choose(s.t))
	s.choices[name].mustStay(s.t, "predicted", all.predict(s.t))
}

// leave connects again: only clients of the pod have another endpoint, which
// they keep.
func (s *story) leave(name, pod string, clients ...string) {
	all := s.expectations(s.allClients(clients)...)
	now := all.choose(s.t)
	s.choices[name].mustLeave(s.t, pod, now)
	now.mustStay(s.t, "second choice", all.choose(s.t))
	s.choices[name] = now
}

// moved connects again, and returns how many clients have another endpoint:
// none, some, or most.
func (s *story) moved(name string, clients ...string) string {
	first := s.choices[name]
	switch n := len(first.moved(s.expectations(s.allClients(clients)...).choose(s.t))); {
	case n == 0:
		return "none"
	case n <= len(first)/2:
		return "some"
	}
	return "most"
}

// loyal connects n times from each client. It returns how many clients keep
// their endpoint, and the endpoints of the others.
func (s *story) loyal(n int, clients ...string) string {
	all := s.expectations(s.allClients(clients)...)
	first := all.choose(s.t)
	loyal, others := maps.Clone(first), choice{}
	for i := range n {
		for who, server := range all.choose(s.t) {
			if first[who] != server {
				delete(loyal, who)
			}
			if loyal[who] == "" {
				others[fmt.Sprint(who, i)] = server
			}
		}
	}
	return fmt.Sprintf("%d of %d, others %s", len(loyal), len(first), others.servers())
}

// spread SERVICE FROM -> TO => ENDPOINT[=WEIGHT]... connects n times: the
// endpoints have these shares, with a deviation that chance practically never
// exceeds.
func (s *story) spread(n int, service string, args ...string) {
	arrow := slices.Index(args, "=>")
	weights, sum := map[string]float64{}, 0.0
	for _, endpoint := range args[arrow+1:] {
		name, weight, weighted := strings.Cut(endpoint, "=")
		weights[name] = 1
		if weighted {
			weights[name] = float64(s.number(weight))
		}
		sum += weights[name]
	}
	for _, k := range s.expectations(append([]string{service}, args[:arrow]...)...) {
		counts := map[string]int{}
		for _, server := range slices.Repeat(checks{k}, n).servers(s.t) {
			counts[server]++
			weights[server] += 0 // perhaps another endpoint
		}
		for name, weight := range weights {
			share := weight / sum
			want, most := float64(n)*share, 6*math.Sqrt(float64(n)*share*(1-share))
			if math.Abs(float64(counts[name])-want) > most {
				s.t.Errorf("%s: got %d of %d connections at %s, want %.0f ± %.0f", k.describe, counts[name], n, name,
					want, most)
			}
		}
	}
}

// allClients replaces "clients", or clients-M-N, by the names of clients.
func (s *story) allClients(args []string) (all []string) {
	for _, arg := range args {
		first, last := 0, 1<<16
		if _, err := fmt.Sscanf(arg, "clients-%d-%d", &first, &last); err != nil && arg != "clients" {
			all = append(all, arg)
			continue
		}
		for i := first; i <= last && s.origins[fmt.Sprint("client-", i)].Namespace != nil; i++ {
			all = append(all, fmt.Sprint("client-", i))
		}
	}
	return all
}

// servers connects once for each check, and returns the servers that answer.
func (cs checks) servers(t testing.TB) []string {
	t.Helper()
	results, servers := make([]lab.Result, len(cs)), make([]string, len(cs))
	cs.each(func(i int) { results[i] = cs[i].probe(t.Context(), lab.ProbeOptions{Timeout: answerTimeout}) })
	for i, k := range cs {
		if results[i].Outcome != lab.Answered {
			t.Fatalf("%s: %v", k.describe, results[i])
		}
		servers[i] = results[i].Answer.Server
	}
	return servers
}

// choose connects once for each check.
func (cs checks) choose(t testing.TB) choice {
	t.Helper()
	chosen := choice{}
	for i, server := range cs.servers(t) {
		chosen[cs[i].client()] = server
	}
	return chosen
}

// client returns the source address and protocol.
func (c *check) client() string { return fmt.Sprintf("%v %s", c.origin.source(c.family), c.network) }

// predict returns the choices that package explain predicts for known clients,
// or with a subject those that they make.
func (cs checks) predict(t testing.TB) choice {
	t.Helper()
	if subject() != "" {
		return cs.choose(t)
	}
	predicted := choice{}
	for _, k := range cs {
		p, err := k.predict(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", k.describe, err)
		}
		predicted[k.client()] = strings.Join(slices.Sorted(maps.Keys(k.serversOf(p.sources))), " ")
	}
	return predicted
}

// servers returns the chosen servers, sorted.
func (c choice) servers() string {
	return strings.Join(slices.Compact(slices.Sorted(maps.Values(c))), " ")
}

// moved returns the clients with another server.
func (c choice) moved(now choice) (moved []string) {
	for who, server := range now {
		if c[who] != server {
			moved = append(moved, fmt.Sprintf("%s: %s, was %s", who, server, c[who]))
		}
	}
	slices.Sort(moved)
	return moved
}

// mustStay reports clients with another server.
func (c choice) mustStay(t testing.TB, when string, now choice) {
	t.Helper()
	if moved := c.moved(now); len(moved) > 0 {
		t.Errorf("%s: %d of %d clients moved: %s", when, len(moved), len(now), someOf(moved))
	}
}

// mustLeave reports clients that are still with the removed endpoint, and
// clients of other endpoints that moved.
func (c choice) mustLeave(t testing.TB, removed string, now choice) {
	t.Helper()
	var wrong []string
	for who, server := range c {
		if now[who] == removed || server != removed && now[who] != server {
			wrong = append(wrong, fmt.Sprintf("%s: %s, was %s", who, now[who], server))
		}
	}
	slices.Sort(wrong)
	if len(wrong) > 0 {
		t.Errorf("%s is removed: %d of %d clients stay there or left another endpoint: %s",
			removed, len(wrong), len(c), someOf(wrong))
	}
}

// someOf returns the first of many clients.
func someOf(clients []string) string {
	const most = 5
	if len(clients) > most {
		clients = append(slices.Clone(clients[:most]), "…")
	}
	return strings.Join(clients, ", ")
}
