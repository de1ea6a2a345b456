package packet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
)

// check is an expectation for one origin, destination, family and protocol.
type check struct {
	cluster  *cluster
	origin   origin
	family   family
	network  string // tcp, udp or sctp
	to       netip.AddrPort
	want     want
	sources  map[string]netip.Addr // of want, by server
	avoided  []netip.Addr          // ejected endpoints
	describe string
}

// attempts returns the minimum and maximum number of attempts to see n
// endpoints. A subject makes more, because nothing predicts that it has no
// other endpoint. The probability to miss one of four endpoints in the maximum
// is (3/4)^240.
func attempts(n int) (least, most int) {
	if subject() != "" {
		return 3 + 3*n, 60 * n
	}
	return 1 + 2*n, 60 * n
}

// run makes the attempts and returns the first error. Without a subject, the
// outcome must also be the one that package explain predicts.
func (c *check) run(ctx context.Context) error {
	if err := c.attempt(ctx); err != nil || subject() != "" {
		return err
	}
	return c.explained(ctx)
}

func (c *check) attempt(ctx context.Context) error {
	switch c.want.outcome {
	case lab.Refused:
		return c.refused(ctx)
	case lab.TimedOut:
		if result := c.probe(ctx, lab.ProbeOptions{Timeout: silence}); result.Outcome != lab.TimedOut {
			return fmt.Errorf("got %v, want no answer", result)
		}
		return nil
	}
	return c.answered(ctx)
}

// probe makes an attempt from the origin.
func (c *check) probe(ctx context.Context, options lab.ProbeOptions) lab.Result {
	options.Local = netip.AddrPortFrom(c.origin.local[c.family], options.Local.Port())
	return lab.Probe(ctx, c.origin.Namespace, c.network, c.to, options)
}

func (c *check) refused(ctx context.Context) error {
	timeout := refusalTimeout
	if subject() != "" {
		timeout = subjectRefusalTimeout
	}
	var result lab.Result
	for range refusalAttempts {
		result = c.probe(ctx, lab.ProbeOptions{Timeout: timeout})
		if result.Outcome != lab.TimedOut {
			break
		}
	}
	if result.Outcome != lab.Refused {
		return fmt.Errorf("got %v, want an immediate refusal", result)
	}
	return nil
}

func (c *check) answered(ctx context.Context) error {
	seen := make(map[string]int)
	least, most := attempts(len(c.sources))
	for i := 0; i < most && (i < least || len(seen) < len(c.sources)); i++ {
		result := c.probe(ctx, lab.ProbeOptions{Timeout: answerTimeout})
		if result.Outcome != lab.Answered {
			return fmt.Errorf("attempt %d: got %v", i+1, result)
		}
		source, ok := c.sources[result.Answer.Server]
		switch {
		case !ok:
			return fmt.Errorf("attempt %d: got %v, want one of the endpoints", i+1, result)
		case result.Answer.Source.Addr() != source:
			return fmt.Errorf("attempt %d: got %v, want source address %v", i+1, result, source)
		}
		seen[result.Answer.Server]++
	}
	if len(seen) < len(c.sources) {
		return fmt.Errorf("got answers %v, want all endpoints", seen)
	}
	return nil
}

// checks are checks that can run concurrently.
type checks []*check

// maxConcurrent returns the maximum number of concurrent checks. More would
// delay attempts until their timeout. On emulated machines, which use -short,
// it is lower.
func maxConcurrent() int {
	if testing.Short() {
		return 8
	}
	return 24
}

// run runs all checks and reports their errors.
func (cs checks) run(t testing.TB) {
	t.Helper()
	cs.report(t, cs.errors(t.Context()))
}

// report reports the errors of checks.
func (cs checks) report(t testing.TB, errs []error) {
	t.Helper()
	for i, err := range errs {
		if err != nil {
			t.Errorf("%s: %v", cs[i].describe, err)
		}
	}
}

// errors runs all checks and returns the error of each. Those that fail run
// again with a subject: the marker does not wait for changes of Nodes and
// ServiceCIDRs.
func (cs checks) errors(ctx context.Context) []error {
	errs := cs.once(ctx)
	const retries, pause = 2, 2 * time.Second
	for i := 0; i < retries && subject() != "" && errors.Join(errs...) != nil; i++ {
		time.Sleep(pause)
		var failed checks
		for i, err := range errs {
			if err != nil {
				failed = append(failed, cs[i])
			}
		}
		again := failed.once(ctx)
		for i, err := range errs {
			if err != nil {
				errs[i], again = again[0], again[1:]
			}
		}
	}
	return errs
}

// once runs all checks once.
func (cs checks) once(ctx context.Context) []error {
	errs := make([]error, len(cs))
	cs.each(func(i int) { errs[i] = cs[i].run(ctx) })
	return errs
}

// each calls f for the index of each check, concurrently.
func (cs checks) each(f func(i int)) {
	var wait sync.WaitGroup
	slots := make(chan struct{}, maxConcurrent())
	for i := range cs {
		slots <- struct{}{}
		wait.Go(func() {
			f(i)
			<-slots
		})
	}
	wait.Wait()
}

// checks returns the checks of expectations about a service.
func (c *cluster) checks(s *service, text string) checks {
	c.t.Helper()
	lines, err := parseExpectations(text)
	if err != nil {
		c.t.Fatalf("%s: %v", s.Name, err)
	}
	var all checks
	for _, e := range lines {
		for _, from := range e.from {
			for _, to := range e.to {
				for _, f := range bothFamilies() {
					for _, protocol := range strings.Fields(s.Protocols) {
						if s.has(f) {
							all = append(all, c.check(s, e, from, to, f, strings.ToLower(protocol)))
						}
					}
				}
			}
		}
	}
	return all
}

func (c *cluster) check(s *service, e expectation, from, to string, f family, network string) *check {
	c.t.Helper()
	k := &check{
		cluster: c, origin: c.origin(from), family: f, network: network, want: e.want,
		to:       c.destination(s, to, f),
		sources:  make(map[string]netip.Addr),
		describe: fmt.Sprintf("%s: %s (%s -> %s, %s, %s)", s.Name, e.line, from, to, network, f),
	}
	for server, source := range e.want.sources {
		if source == "itself" {
			source = from
		}
		k.sources[server] = c.origin(source).source(f)
	}
	for _, pod := range s.avoided {
		k.avoided = append(k.avoided, c.origin(pod).source(f))
	}
	return k
}

func (c *cluster) origin(name string) origin {
	c.t.Helper()
	o, ok := c.origins[name]
	if !ok {
		c.t.Fatalf("unknown origin %q", name)
	}
	return o
}

// destination returns the address and port of a frontend: clusterIP,
// externalIP, loadBalancerIP, proxyIP (a LoadBalancer IP with ipMode Proxy)
// nodePort@PLACE, or pod@NAME for an endpoint without a Service. A place is a
// node, "loopback", or an added one. The name or number of a port may follow a
// colon; the default is the service's first port.
func (c *cluster) destination(s *service, to string, f family) netip.AddrPort {
	c.t.Helper()
	kind, portName, named := strings.Cut(to, ":")
	index := 0
	if named {
		index = slices.IndexFunc(s.ports, func(p port) bool { return p.name == portName })
	}
	var number uint16
	if index >= 0 {
		number = s.ports[index].number
	} else {
		n, err := strconv.ParseUint(portName, 10, 16)
		if err != nil {
			c.t.Fatalf("destination %q: unknown port of service %s", to, s.Name)
		}
		number = uint16(n)
	}
	ranges := map[string][]netip.Prefix{
		"clusterIP":      lab.ServiceRanges(),
		"externalIP":     lab.ExternalRanges(),
		"loadBalancerIP": loadBalancerRanges(),
		"proxyIP":        proxyRanges(),
	}
	if r, ok := ranges[kind]; ok {
		return netip.AddrPortFrom(s.address(r, f), number)
	}
	if pod, ok := strings.CutPrefix(kind, "pod@"); ok {
		return netip.AddrPortFrom(c.origin(pod).source(f), s.ports[0].target)
	}
	place, ok := strings.CutPrefix(kind, "nodePort@")
	if !ok || index < 0 {
		c.t.Fatalf("unknown destination %q", to)
	}
	return netip.AddrPortFrom(c.place(place)[f], s.nodePort(index))
}

// place returns the addresses of a place.
func (c *cluster) place(name string) [2]netip.Addr {
	c.t.Helper()
	switch name {
	case "node1":
		return [2]netip.Addr(c.Node1.Addrs())
	case "node2":
		return [2]netip.Addr(c.Node2.Addrs())
	case "loopback":
		return pair("127.0.0.1", "::1")
	}
	addrs, ok := c.places[name]
	if !ok {
		c.t.Fatalf("unknown place %q", name)
	}
	return addrs
}
