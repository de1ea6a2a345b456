package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/script"
)

// Scripts about the fates of flows run twice: a pass for few frontends makes
// narrow dumps, and a pass for many makes one wide dump.
func TestFates(t *testing.T) {
	for name, more := range map[string]int{"narrow": 0, "wide": 20} {
		t.Run(name, func(t *testing.T) {
			run(t, "testdata/fates", func(s *story, _ *script.Env) { s.more = more })
		})
	}
}

func TestScripts(t *testing.T) { run(t, "testdata/scripts", func(*story, *script.Env) {}) }

// Scripts about packets run for both families, each with flows in the default
// zone and with flows in another zone. On emulated machines, which use -short,
// each family has one of the zones.
func TestPackets(t *testing.T) {
	for family, names := range map[string][]string{
		"ipv4": {"CLIENT=10.1.1.2", "VIP=10.1.96.10", "NODE=192.0.2.1", "OTHER=192.0.2.3", "ANY=0.0.0.0",
			"A=10.1.2.2", "B=10.1.2.3", "C=10.1.2.4"},
		"ipv6": {"CLIENT=[fd01:1::2]", "VIP=[fd01:96::10]", "NODE=[fd01::1]", "OTHER=[fd01::3]", "ANY=[::]",
			"A=[fd01:2::2]", "B=[fd01:2::3]", "C=[fd01:2::4]"},
	} {
		zones := []string{"0", "7"}
		if testing.Short() {
			zones = map[string][]string{"ipv4": zones[1:], "ipv6": zones[:1]}[family]
		}
		for _, zone := range zones {
			t.Run(family+" zone "+zone, func(t *testing.T) {
				run(t, "testdata/packets", func(s *story, e *script.Env) {
					e.Vars = append(append(e.Vars, "FAMILY="+family), names...)
					s.zone = zone
				})
			})
		}
	}
}

// story is the state of a script: a node with a table of flows, and a Cleaner,
// with a fake clock. These are its steps, besides the standard ones:
//
//	add FILE                       adds flows to the table (see parseFlow)
//	clean                          waits for the passes, prints the fates of
//	                               the added flows, and empties the table
//	frontend [PROTO] FRONTEND ENDPOINT…  a frontend, of UDP by default, has
//	                               these endpoints
//	begins [PROTO] FRONTEND ENDPOINT…  the same, and it begins to serve
//	gone [PROTO] FRONTEND          a frontend is gone
//	nodeports ADDRESS…             NodePorts are on these addresses
//	removed PROTO ENDPOINT FRONTEND…  an endpoint no longer exists
//	fail N                         the next N passes fail
//	pass DURATION                  time passes
//	passes                         prints the passes since the last time
//	select FAMILY PROTO [ADDRESS] [translated] [answered|unanswered] [replies]
//	                               prints connections
//	delete-attempts FAMILY [ENDPOINT]  deletes TCP attempts without an answer
//	plan N                         prints the dumps for a table of N flows
//	ports N ADDRESS, addresses N ADDRESS PORT            N frontends begin
//	removed-ports N ADDRESS, removed-endpoints N ADDRESS PORT
//	dnat FRONTEND ENDPOINT…        rules translate new flows of packets
//	send CLIENT FRONTEND           sends a packet
//	ask CLIENT FRONTEND            prints the endpoint that answers
type story struct {
	packets
	t       testing.TB
	conn    *Conn // lists and adds flows
	cleaner *Cleaner
	more    int // frontends that change with each clean
	start   time.Time
	flows   []trackedFlow
	lines   []string // that describe flows, without their fates

	mu     sync.Mutex // of the fields that the Cleaner's goroutine uses
	fails  int        // passes that fail
	passes []string
}

// run runs the scripts of a directory.
func run(t *testing.T, dir string, setup func(*story, *script.Env)) {
	script.Run(t, script.Suite{Dir: dir, Namespace: true, FakeClock: true, Setup: func(e *script.Env) (
		map[string]script.Command, error) {
		s := &story{t: e.T, conn: open(e.T), start: time.Now()}
		s.packets.t = e.T
		setup(s, e)
		addNode(e.T, s.conn)
		s.run()
		return script.Steps(map[string]any{
			"add": s.add, "clean": s.clean, "pass": s.pass, "passes": s.takePasses,
			"fail": s.fail, "select": s.selectFlows, "dnat": s.dnat, "ask": s.ask, "send": s.send,
			"delete-attempts": s.deleteAttempts,
			"frontend":        s.update(FrontendChange{}),
			"begins":          s.update(FrontendChange{Check: true}),
			"gone":            s.update(FrontendChange{Gone: true}),
			"plan":            s.plan, "ports": s.many(false, s.begins), "addresses": s.many(true, s.begins),
			"removed-ports": s.many(false, s.remove), "removed-endpoints": s.many(true, s.remove),
			"nodeports": s.nodePorts, "removed": s.removed,
		}), nil
	}})
}

// run runs a Cleaner until the script ends. NodePorts are on all addresses.
func (s *story) run() {
	s.cleaner = open(s.t).NewCleaner(CleanerConfig{Report: s.passed})
	clean := s.cleaner.clean
	s.cleaner.clean = func(ctx context.Context, todo *check) (Stats, error) {
		s.mu.Lock()
		fails := s.fails > 0
		s.fails = max(s.fails-1, 0)
		s.mu.Unlock()
		if fails {
			return Stats{}, errors.New("broken")
		}
		return clean(ctx, todo)
	}
	s.cleaner.SetNodeAddrs(IPv4, []netip.Addr{IPv4.Unspecified()})
	s.cleaner.SetNodeAddrs(IPv6, []netip.Addr{IPv6.Unspecified()})
	ctx, cancel := context.WithCancel(context.Background())
	var ended atomic.Bool
	go func() {
		if err := s.cleaner.Run(ctx); err != nil {
			s.t.Errorf("got Run error %v, want none", err)
		}
		ended.Store(true)
	}()
	synctest.Wait()
	s.t.Cleanup(func() {
		cancel()
		if synctest.Wait(); !ended.Load() {
			s.t.Error("Run did not return after its context ended")
		}
	})
}

func (s *story) passed(r Result) {
	text := fmt.Sprintf("%v: %d changes, %d rechecks, %d dumps, %d of %d flows deleted",
		time.Since(s.start), r.Changes, r.Rechecks, r.Dumps, r.Deleted, r.Flows)
	if r.DeletedIPv6 > 0 {
		text += fmt.Sprintf(", %d of IPv6", r.DeletedIPv6)
	}
	if r.Err != nil {
		text += ": " + r.Err.Error()
	}
	s.record(text)
}

func (s *story) record(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passes = append(s.passes, line+"\n")
}

// takePasses returns the passes since it was called last.
func (s *story) takePasses() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.passes = nil }()
	return strings.Join(s.passes, "")
}

// fail makes the next n passes fail.
func (s *story) fail(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = n
}

// pass lets time pass.
func (s *story) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// update returns the step that changes a frontend.
func (s *story) update(change FrontendChange) any {
	return func(args ...string) {
		change := change
		if protocol, ok := protocols[args[0]]; ok {
			change.Protocol, args = protocol, args[1:]
		}
		change.Frontend, change.Endpoints = addrPort(args[0]), addrPorts(args[1:]...)
		s.cleaner.Update(change)
	}
}

// nodePorts sets the addresses that NodePorts listen on.
func (s *story) nodePorts(addrs ...netip.Addr) { s.cleaner.SetNodeAddrs(familyOf(addrs[0]), addrs) }

// plan returns the dumps of a pass for the changes since the last step plan,
// for a table with a number of entries.
func (s *story) plan(entries int) string {
	taken := s.cleaner.take()
	var todo check
	todo.merge(taken)
	var text strings.Builder
	for _, dump := range plan(&todo, entries) {
		fmt.Fprintln(&text, dump)
	}
	return text.String()
}

// many returns a step for changes of N frontends or endpoints: consecutive
// addresses with a port, or consecutive ports of an address.
func (s *story) many(addrs bool, change func(netip.AddrPort)) any {
	if addrs {
		return func(n int, at netip.Addr, port uint16) {
			for range n {
				change(netip.AddrPortFrom(at, port))
				at = at.Next()
			}
		}
	}
	return func(n int, at netip.Addr) {
		for i := range n {
			change(netip.AddrPortFrom(at, uint16(1+i)))
		}
	}
}

func (s *story) begins(at netip.AddrPort) {
	s.cleaner.Update(FrontendChange{Frontend: at, Check: true})
}

func (s *story) remove(at netip.AddrPort) { s.cleaner.Remove(removalOf(at.String())) }

// removed reports the removal of an endpoint: PROTOCOL ENDPOINT FRONTEND...
func (s *story) removed(protocol, endpoint string, frontends ...string) {
	r := removalOf(endpoint, frontends...)
	r.Protocol = protocols[protocol]
	r.Done = func(n int) { s.record(fmt.Sprintf("%s: %d connections", endpoint, n)) }
	s.cleaner.Remove(r)
}

// add adds the flows of a file to the table. The first word of each line is the
// fate of the flow.
func (s *story) add(sc *script.Script, file string) {
	for line := range strings.Lines(sc.ReadFile(file)) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
		if line = strings.TrimSpace(line); line != "" {
			flow := parseFlow(line)
			add(s.t, s.conn, flow)
			flow.state, flow.status = 0, 0
			s.flows, s.lines = append(s.flows, flow), append(s.lines, line)
		}
	}
}

// clean waits for the two passes for changes, and returns the fates of the
// added flows.
func (s *story) clean() (string, error) {
	s.cleaner.Update(append(changes(s.more, numberedPort), changes(s.more, numberedPort6)...)...)
	for i := range s.more { // endpoints of other services
		for _, addr := range []string{"10.244.1.5", "[fd24::5]"} {
			s.cleaner.Remove(removalOf(fmt.Sprintf("%s:%d", addr, 1000+i)))
		}
	}
	time.Sleep(time.Second)
	synctest.Wait()
	var text strings.Builder
	found := slices.Collect(mustYield(s.t, s.conn.listFlows(Selection{})))
	table := withoutUnpredictable(found)
	for i, flow := range s.flows {
		fate := "deleted"
		if at := slices.Index(table, flow); at >= 0 {
			fate, table = "kept   ", slices.Delete(table, at, at+1)
		}
		fmt.Fprintln(&text, fate, s.lines[i])
	}
	for _, flow := range table {
		fmt.Fprintln(&text, "unexpected", flow)
	}
	s.flows, s.lines = nil, nil
	_, err := s.conn.deleteFlows(found...)
	return text.String(), err
}

// selectFlows returns the connections of a family and protocol, to a frontend
// if one is given, and of these the ones that the words select.
func (s *story) selectFlows(family, protocol string, args ...string) (string, error) {
	selection := Selection{Protocol: protocols[protocol], Family: IPv4}
	if family == "ipv6" {
		selection.Family = IPv6
	}
	for _, arg := range args {
		switch arg {
		case "translated":
			selection.Translated = true
		case "answered":
			selection.Answer = Answered
		case "unanswered":
			selection.Answer = Unanswered
		case "replies":
			selection.Replies = true
		default:
			at := addrPort(arg)
			selection.Addr, selection.Port = at.Addr(), at.Port()
		}
	}
	var found []string
	err := s.conn.Select(s.t.Context(), selection, func(c Connection) {
		if c.Protocol != unix.IPPROTO_ICMPV6 { // of the kernel itself
			found = append(found, fmt.Sprintf("%v -> %v -> %v %s\n", c.Client, c.Frontend, c.Endpoint, c.State))
		}
	})
	slices.Sort(found)
	return strings.Join(found, ""), err
}

// deleteAttempts deletes the attempts to connect of a family, to an endpoint if
// one is given, and prints their number.
func (s *story) deleteAttempts(family string, to ...string) (string, error) {
	selection := Selection{Family: IPv4, Translated: true}
	if family == "ipv6" {
		selection.Family = IPv6
	}
	n, err := s.conn.DeleteAttempts(s.t.Context(), selection, func(_, endpoint netip.AddrPort) bool {
		return len(to) == 0 || endpoint == addrPort(to[0])
	})
	return fmt.Sprintln(n), err
}
