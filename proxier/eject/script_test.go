package eject

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/test/script"
)

// story is the state of a script: a Detector, and a world that answers its
// orders. Service ports have names such as shop/web. These are its steps,
// besides the standard ones:
//
//	targets PORT ADDRESS… [local ADDRESS…]  a service port uses these endpoints
//	updated ADDRESS          the API changed an endpoint
//	dead ADDRESS…            endpoints that answer nothing from now on
//	deaf ADDRESS…            endpoints that answer clients, but no probes
//	gone ADDRESS…            endpoints to which this node cannot send
//	alive ADDRESS…           endpoints that answer
//	offline, online          this node cannot send probes, or can
//	busy, idle               the tables take no ejections, or do
//	nolooks, looks           nobody looks at endpoints, or somebody does
//	walks PERIOD             walks take place in this period, not each second
//	tries PORT ADDRESS N     N clients, which the endpoint has answered before, have waited for answers now
//	strangers PORT ADDRESS N   the same, of clients that it has not answered
//	try PORT ADDRESS CLIENT ID   an attempt is unanswered now
//	many PORT N              N endpoints of a service port, each with two tries
//	broken NAMESPACE N       N service ports, all of whose endpoints are dead and two of which have tries
//	answers ADDRESS N [CLIENT]   an endpoint answers N connections of a client, or of N others
//	forgets ADDRESS          connection tracking forgets the connections that an endpoint has answered
//	walk                     prints in how many milliseconds a walk is wanted
//	pass DURATION            time passes
//	log                      prints what happened, with the time
//	ejected, blind           prints ejected endpoints, and blind service ports
//	probes                   prints the number of probes by namespace
//	records                  prints the number of known endpoints
type story struct {
	d                *Detector
	start, now       time.Time
	targets          map[Port]Targets
	updated          map[netip.AddrPort]bool
	dead, deaf, gone map[netip.AddrPort]bool
	offline          bool
	busy             bool
	noLooks          bool
	connected        map[netip.AddrPort][]Answer
	results          []result
	log              []string
	probes           map[string]int
	clients          int
	walked           time.Time
	period           time.Duration // of walks
}

// result is the result of a probe at a time.
type result struct {
	at time.Time
	Probe
	Result
}

func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{Setup: func(e *script.Env) (map[string]script.Command, error) {
		start := time.Unix(1e9, 0)
		s := &story{
			d: New(), start: start, now: start, targets: make(map[Port]Targets),
			updated: make(map[netip.AddrPort]bool), dead: make(map[netip.AddrPort]bool),
			deaf: make(map[netip.AddrPort]bool), gone: make(map[netip.AddrPort]bool),
			connected: make(map[netip.AddrPort][]Answer),
			probes:    make(map[string]int), walked: start, period: time.Second,
		}
		return map[string]script.Command{
			"targets": s.setTargets, "updated": s.set(s.updated), "dead": s.set(s.dead), "deaf": s.set(s.deaf),
			"gone":  s.set(s.gone),
			"alive": s.alive, "offline": set(&s.offline, true), "online": set(&s.offline, false),
			"busy": set(&s.busy, true), "idle": set(&s.busy, false),
			"nolooks": set(&s.noLooks, true), "looks": set(&s.noLooks, false), "tries": s.tries,
			"strangers": s.strangers, "forgets": s.forgets, "walk": s.takeWalk, "try": s.try,
			"many": s.many, "broken": s.broken, "walks": s.walks, "answers": s.answers, "pass": s.pass,
			"log":     s.takeLog,
			"ejected": s.ejected, "blind": s.blind, "probes": s.takeProbes, "records": s.records,
		}, nil
	}})
}

func portOf(name string) Port {
	namespace, service, _ := strings.Cut(name, "/")
	return Port{nft.IPv4, cluster.ServiceName{Namespace: namespace, Name: service}.WithPort("")}
}

func parse(addrs []string) (all []netip.AddrPort) {
	for _, a := range addrs {
		all = append(all, netip.MustParseAddrPort(a))
	}
	return all
}

func (s *story) setTargets(_ *script.Script, args []string) (string, error) {
	all, local := args[1:], []string(nil)
	if i := slices.Index(args, "local"); i > 0 {
		all, local = args[1:i], args[i+1:]
	}
	s.targets[portOf(args[0])] = Targets{parse(all), parse(local)}
	s.reconcile()
	return "", nil
}

// reconcile passes the targets of all service ports, as the tables know them.
func (s *story) reconcile() {
	for p, t := range s.targets {
		var known []netip.AddrPort
		all, begun := s.d.Ejections(p)
		for _, e := range all {
			if !s.updated[e.Endpoint] && !slices.Contains(begun, e.Endpoint) {
				known = append(known, e.Endpoint)
			}
		}
		s.d.SetTargets(p, t, known)
	}
	clear(s.updated)
}

func (s *story) set(of map[netip.AddrPort]bool) script.Command {
	return func(_ *script.Script, args []string) (string, error) {
		for _, a := range parse(args) {
			of[a] = true
		}
		return "", nil
	}
}

func (s *story) alive(_ *script.Script, args []string) (string, error) {
	for _, a := range parse(args) {
		delete(s.dead, a)
		delete(s.deaf, a)
		delete(s.gone, a)
	}
	return "", nil
}

// set returns a command that sets a variable.
func set(of *bool, to bool) script.Command {
	return func(*script.Script, []string) (string, error) {
		*of = to
		return "", nil
	}
}

func (s *story) walks(_ *script.Script, args []string) (_ string, err error) {
	s.period, err = time.ParseDuration(args[0])
	return "", err
}

func (s *story) tries(_ *script.Script, args []string) (string, error) {
	tries, err := s.parseTries(args)
	s.known(tries)
	return "", err
}

func (s *story) strangers(_ *script.Script, args []string) (string, error) {
	tries, err := s.parseTries(args)
	s.walk(tries)
	return "", err
}

func (s *story) parseTries(args []string) ([]Try, error) {
	n, err := strconv.Atoi(args[2])
	return s.newTries(Endpoint{portOf(args[0]), netip.MustParseAddrPort(args[1])}, n), err
}

// answer records that an endpoint has answered a connection of a client.
func (s *story) answer(at netip.AddrPort, client netip.Addr) {
	s.clients++
	s.connected[at] = append(s.connected[at], Answer{uint32(s.clients), client, 2 * time.Minute})
}

// walk passes what a walk found.
func (s *story) walk(tries []Try) {
	s.reconcile()
	s.d.Tried(s.now, tries)
	s.walked = s.now
}

func (s *story) newTries(e Endpoint, n int) (all []Try) {
	for range n {
		s.clients++
		client := netip.AddrFrom4([4]byte{10, 9, byte(s.clients >> 8), byte(s.clients)})
		all = append(all, Try{e, netip.AddrPortFrom(client, 4000), uint32(s.clients)})
	}
	return all
}

func (s *story) try(_ *script.Script, args []string) (string, error) {
	id, err := strconv.Atoi(args[3])
	e, client := Endpoint{portOf(args[0]), netip.MustParseAddrPort(args[1])}, netip.MustParseAddrPort(args[2])
	s.walk([]Try{{e, client, uint32(id)}})
	return "", err
}

func (s *story) many(_ *script.Script, args []string) (string, error) {
	n, err := strconv.Atoi(args[1])
	p := portOf(args[0])
	var tries []Try
	for i := range n {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80)
		s.dead[addr] = true
		t := s.targets[p]
		t.Cluster = append(t.Cluster, addr)
		s.targets[p] = t
		tries = append(tries, s.newTries(Endpoint{p, addr}, 2)...)
	}
	s.known(tries)
	return "", err
}

// known passes tries of clients that their endpoints have answered before.
func (s *story) known(tries []Try) {
	for _, t := range tries {
		s.answer(t.Addr, t.Client.Addr())
	}
	s.walk(tries)
}

func (s *story) broken(_ *script.Script, args []string) (string, error) {
	n, err := strconv.Atoi(args[1])
	var tries []Try
	for i := range n {
		p := portOf(fmt.Sprintf("%s/web%d", args[0], i))
		t := Targets{}
		for j := range 6 {
			addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 2, byte(i), byte(j)}), 80)
			s.dead[addr] = true
			t.Cluster = append(t.Cluster, addr)
		}
		s.targets[p] = t
		for _, addr := range t.Cluster[:2] {
			tries = append(tries, s.newTries(Endpoint{p, addr}, 2)...)
		}
	}
	s.known(tries)
	return "", err
}

func (s *story) answers(_ *script.Script, args []string) (string, error) {
	n, err := strconv.Atoi(args[1])
	for range n {
		client := s.newTries(Endpoint{}, 1)[0].Client.Addr()
		if len(args) > 2 {
			client = netip.MustParseAddr(args[2])
		}
		s.answer(netip.MustParseAddrPort(args[0]), client)
	}
	return "", err
}

func (s *story) forgets(_ *script.Script, args []string) (string, error) {
	delete(s.connected, netip.MustParseAddrPort(args[0]))
	return "", nil
}

func (s *story) takeWalk(*script.Script, []string) (string, error) {
	orders := s.d.Next(s.now)
	if orders.Walk.IsZero() {
		return "none\n", nil
	}
	return fmt.Sprintln(orders.Walk.Sub(s.now).Milliseconds()), nil
}

func (s *story) pass(_ *script.Script, args []string) (string, error) {
	d, err := time.ParseDuration(args[0])
	for end := s.now.Add(d); s.now.Before(end); s.now = s.now.Add(50 * time.Millisecond) {
		s.tick()
	}
	return "", err
}

// tick does what the Detector needs now.
func (s *story) tick() {
	if s.now.Sub(s.walked) >= s.period {
		s.walk(nil)
	}
	s.results = slices.DeleteFunc(s.results, func(r result) bool {
		if r.at.After(s.now) {
			return false
		}
		s.d.Probed(s.now, r.Probe, r.Result)
		s.note("probe of %s %v %s", name(r.Endpoint), map[bool]string{true: "(control)"}[r.Control], r.Result)
		return true
	})
	for {
		orders := s.d.Next(s.now)
		if s.noLooks {
			orders.Looks = nil
		}
		for _, e := range orders.Looks {
			s.d.Answers(s.now, e, s.connected[e.Addr])
		}
		for _, p := range orders.Probes {
			s.probe(p)
		}
		if len(orders.Looks)+len(orders.Probes) == 0 {
			break
		}
	}
	for _, p := range s.d.Changed() {
		if s.busy {
			break
		}
		all := s.current(p)
		s.note("ejected of %s/%s: %s", p.Namespace, p.Name, addrs(all))
		s.d.Applied(p)
	}
	for _, p := range s.d.Blinded() {
		s.note("%s/%s is blind", p.Namespace, p.Name)
	}
}

func (s *story) probe(p Probe) {
	s.probes[p.Namespace]++
	r := result{s.now.Add(50 * time.Millisecond), p, Answered}
	switch {
	case s.offline:
		r.Result = Failed
	case s.gone[p.Addr]:
		r.at, r.Result = s.now.Add(ProbeTimeout), Unresolved
	case s.dead[p.Addr] || s.deaf[p.Addr]:
		r.at, r.Result = s.now.Add(ProbeTimeout), Lost
	}
	s.results = append(s.results, r)
}

func (s *story) note(format string, args ...any) {
	at := s.now.Sub(s.start).Seconds()
	line := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	s.log = append(s.log, fmt.Sprintf("%.2f %s\n", at, line))
}

// current returns the endpoints that are ejected, without those on trial.
func (s *story) current(p Port) []cluster.Ejection {
	all, _ := s.d.Ejections(p)
	return slices.DeleteFunc(all, func(e cluster.Ejection) bool { return e.OnTrial })
}

func name(e Endpoint) string {
	return fmt.Sprintf("%s/%s %v", e.Namespace, e.Name, e.Addr)
}

func addrs(all []cluster.Ejection) string {
	var text []string
	for _, e := range all {
		text = append(text, e.Endpoint.String())
	}
	return strings.Join(text, " ")
}

func (s *story) takeLog(*script.Script, []string) (string, error) {
	text := strings.Join(s.log, "")
	s.log = nil
	return text, nil
}

func (s *story) ejected(*script.Script, []string) (string, error) {
	var lines []string
	for p := range s.targets {
		for _, e := range s.current(p) {
			lines = append(lines, fmt.Sprintf("%s/%s %v since %gs until %gs: %s\n", p.Namespace,
				p.Name, e.Endpoint, e.Since.Sub(s.start).Seconds(), e.Until.Sub(s.start).Seconds(), e.Why()))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), nil
}

func (s *story) blind(*script.Script, []string) (string, error) {
	var names []string
	for _, p := range s.d.Blind(s.now) {
		names = append(names, p.ServiceName.String())
	}
	return fmt.Sprintln(strings.Join(names, " ")), nil
}

func (s *story) takeProbes(*script.Script, []string) (string, error) {
	var lines []string
	for namespace, n := range s.probes {
		lines = append(lines, fmt.Sprintf("%s %d\n", namespace, n))
	}
	slices.Sort(lines)
	clear(s.probes)
	return strings.Join(lines, ""), nil
}

func (s *story) records(*script.Script, []string) (string, error) {
	return fmt.Sprintln(maxRecords - s.d.limit.Left()), nil
}
