package checker

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/eject"
	"github.com/nftproxy/nftproxy/proxier/eject/probe"
	"github.com/nftproxy/nftproxy/test/script"
)

// story is the state of a script: a schedule, and endpoints that reply to its
// checks. Service ports have names such as shop/web:http. These are its steps,
// besides the standard ones:
//
//	check ANNOTATION            how Services are checked that are set from now on
//	check                       they are not checked
//	endpoints PORT ADDRESS…     a service port uses these endpoints
//	many NAMESPACE N M          N Services with M endpoints each
//	refused, silent, unsent, accepted ADDRESS…   what comes back from now on
//	pass DURATION               time passes
//	log                         prints what tables get, with the time
//	checks                      prints the checks since the last call, by Service
//	rates                       prints the checks in a second, by namespace
//	random                      periods differ at random from now on
//	most                        prints the most checks in a tenth of a second
//	summary                     describes the checks
type story struct {
	s          *schedule
	start, now time.Time
	check      *cluster.HealthCheck
	replies    map[netip.AddrPort]probe.Reply
	waiting    []waiting
	log        []string
	checks     map[cluster.ServiceName]int
	counted    time.Time // the last call of checks or rates
	most       int
}

// waiting is a check that gets its reply at a time.
type waiting struct {
	at time.Time
	reply
}

func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{Setup: func(*script.Env) (map[string]script.Command, error) {
		start := time.Unix(1e9, 0)
		s := &story{
			s: newSchedule(), start: start, now: start, counted: start, replies: make(map[netip.AddrPort]probe.Reply),
			checks: make(map[cluster.ServiceName]int),
		}
		s.s.random = func() float64 { return 0.5 }
		return map[string]script.Command{
			"check": s.setCheck, "endpoints": s.endpoints, "many": s.many, "pass": s.pass, "log": s.takeLog,
			"checks": s.takeChecks, "rates": s.rates, "most": s.takeMost, "summary": s.summary,
			"random": func(*script.Script, []string) (string, error) {
				s.s.random = rand.New(rand.NewPCG(1, 2)).Float64
				return "", nil
			},
			"refused": s.reply(probe.Refused), "silent": s.reply(probe.Silence), "unsent": s.reply(probe.NotSent),
			"accepted": s.reply(probe.Accepted),
		}, nil
	}})
}

func portOf(text string) eject.Port {
	name, port, _ := strings.Cut(text, ":")
	namespace, service, _ := strings.Cut(name, "/")
	return eject.Port{
		Family: nft.IPv4, PortName: cluster.ServiceName{Namespace: namespace, Name: service}.WithPort(port),
	}
}

func parse(addrs []string) (all []netip.AddrPort) {
	for _, a := range addrs {
		all = append(all, netip.MustParseAddrPort(a))
	}
	return all
}

func (s *story) setCheck(_ *script.Script, args []string) (string, error) {
	s.check = nil
	if len(args) == 0 {
		return "", nil
	}
	s.check = new(cluster.HealthCheck)
	return "", s.check.UnmarshalText([]byte(strings.Join(args, " ")))
}

func (s *story) endpoints(_ *script.Script, args []string) (string, error) {
	s.s.set(portOf(args[0]), s.check, parse(args[1:]))
	s.apply()
	return "", nil
}

func (s *story) many(_ *script.Script, args []string) (string, error) {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return "", err
	}
	m, err := strconv.Atoi(args[2])
	for i := range n {
		var all []netip.AddrPort
		for j := range m {
			all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(j >> 8), byte(j)}), 80))
		}
		s.s.set(portOf(fmt.Sprintf("%s/s%d", args[0], i)), s.check, all)
	}
	return "", err
}

func (s *story) reply(r probe.Reply) script.Command {
	return func(_ *script.Script, args []string) (string, error) {
		for _, a := range parse(args) {
			s.replies[a] = r
		}
		return "", nil
	}
}

func (s *story) pass(_ *script.Script, args []string) (string, error) {
	d, err := time.ParseDuration(args[0])
	for end := s.now.Add(d); s.now.Before(end); s.now = s.now.Add(actGap) {
		s.tick()
	}
	return "", err
}

// tick does what Checker.act does. A reply takes 50 ms, silence the timeout.
func (s *story) tick() {
	s.waiting = slices.DeleteFunc(s.waiting, func(w waiting) bool {
		if w.at.After(s.now) {
			return false
		}
		s.s.done(s.now, w.target, w.Reply)
		return true
	})
	due := s.s.take(s.now, burst)
	s.most = max(s.most, len(due))
	for _, t := range due {
		s.checks[t.service.name]++
		r, after := probe.Accepted, 50*time.Millisecond
		if other, ok := s.replies[t.addr]; ok {
			r = other
		}
		if r == probe.Silence {
			after = t.service.check.Timeout()
		}
		s.waiting = append(s.waiting, waiting{s.now.Add(after), reply{t, r}})
	}
	s.apply()
}

func (s *story) apply() {
	for _, port := range slices.SortedFunc(maps.Keys(s.s.changed), eject.Port.Compare) {
		line := fmt.Sprintf("%.1f %s unhealthy:", s.now.Sub(s.start).Seconds(), port)
		for _, e := range s.s.unhealthy(port) {
			line += fmt.Sprintf(" %s (%s)", e.Endpoint, e.Why())
		}
		s.log = append(s.log, line+"\n")
		delete(s.s.changed, port)
	}
}

func (s *story) takeLog(*script.Script, []string) (string, error) {
	text := strings.Join(s.log, "")
	s.log = nil
	return text, nil
}

// count returns the checks since the last call, and how many seconds passed.
func (s *story) count() (checks map[cluster.ServiceName]int, seconds float64) {
	checks, seconds = s.checks, s.now.Sub(s.counted).Seconds()
	s.checks, s.counted = make(map[cluster.ServiceName]int), s.now
	return checks, seconds
}

func (s *story) takeChecks(*script.Script, []string) (text string, _ error) {
	checks, _ := s.count()
	for _, name := range slices.SortedFunc(maps.Keys(checks), cluster.ServiceName.Compare) {
		text += fmt.Sprintln(name, checks[name])
	}
	return text, nil
}

func (s *story) rates(*script.Script, []string) (text string, _ error) {
	checks, seconds := s.count()
	namespaces := make(map[string]int)
	for name, n := range checks {
		namespaces[name.Namespace] += n
	}
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		text += fmt.Sprintf("%s %.1f\n", namespace, float64(namespaces[namespace])/seconds)
	}
	return text, nil
}

func (s *story) takeMost(*script.Script, []string) (string, error) {
	most := s.most
	s.most = 0
	return fmt.Sprintln(most), nil
}

func (s *story) summary(*script.Script, []string) (string, error) {
	return fmt.Sprintf("%+v\n", s.s.summary()), nil
}
