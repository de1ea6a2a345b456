package lab_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/script"
)

const port = 8080

// Each script has a lab with client, node1 and node2. A place is a namespace by
// its name, with its addresses of both families, or an address.
//
//	add POD NODE [bridge=NAME] [interface=NAME] [like=POD]   adds a pod, at the addresses of another one
//	remove POD
//	serve PLACE...                serves TCP, UDP and SCTP at port 8080
//	shut PLACE                    ends these servers
//	addresses POD                 returns the addresses
//	change NODE ACTION ARG...     adds an address, an interface or a route
//	probe PLACE,... NETWORK,... PLACE,... [OPTION...] => OUTCOME    all attempts have the outcome: refused, or
//	                              "POD as SOURCE", where the source is an address and a port, or itself
//	open NAME PLACE NETWORK PLACE,... [OPTION...]   keeps the connections or flows
//	ask NAME => OUTCOME           sends on them
//	lost NAME                     returns the number of lost packets of each
//	on PLACE COMMAND...           runs a program and returns its output
//
// The source of an attempt is chosen, or has the port port=N of the place or
// anyport=N of no address, or is from=ADDRESS:PORT. times=N repeats it.
func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{
		Judges: []string{"probe", "ask"},
		Setup: func(e *script.Env) (map[string]script.Command, error) {
			l := labtest.New(e.T)
			s := &stage{
				Lab: l, pods: map[string]*lab.Pod{},
				conns: map[string][]*lab.Conn{}, servers: map[string][]*lab.Server{},
			}
			s.places = map[string]*lab.Namespace{
				"client": l.Client, "node1": l.Node1.Namespace, "node2": l.Node2.Namespace,
			}
			e.Defer(s.close)
			return script.Steps(map[string]any{
				"add": s.add, "remove": s.remove, "serve": s.serve, "shut": s.stop, "addresses": s.addresses,
				"change": s.change, "probe": s.probe, "open": s.open, "ask": s.ask, "lost": s.lost, "on": s.on,
			}), nil
		},
	})
}

// stage is the lab of a script.
type stage struct {
	*lab.Lab
	places  map[string]*lab.Namespace
	pods    map[string]*lab.Pod
	servers map[string][]*lab.Server
	conns   map[string][]*lab.Conn
}

func (s *stage) close() {
	for _, conns := range s.conns {
		for _, c := range conns {
			c.Close()
		}
	}
}

func (s *stage) node(name string) *lab.Node { return s.Nodes()[name[len(name)-1]-'1'] }

func (s *stage) add(name, node string, options ...string) error {
	config := lab.PodConfig{Name: name}
	for _, arg := range options {
		switch key, value, _ := strings.Cut(arg, "="); key {
		case "bridge":
			config.Bridge = value
		case "interface":
			config.HostInterface = value
		case "like":
			config.IPv4, config.IPv6 = s.pods[value].IPv4, s.pods[value].IPv6
		}
	}
	pod, err := s.node(node).AddPodWith(config)
	if err == nil {
		s.pods[name], s.places[name] = pod, pod.Namespace
	}
	return err
}

func (s *stage) remove(pod string) error { return s.pods[pod].Remove() }

func (s *stage) serve(places ...string) error {
	for _, name := range places {
		at := s.places[name]
		for _, serve := range []func(uint16) (*lab.Server, error){at.ServeTCP, at.ServeUDP, at.ServeSCTP} {
			server, err := serve(port)
			if err != nil {
				return err
			}
			s.servers[name] = append(s.servers[name], server)
		}
	}
	return nil
}

func (s *stage) stop(place string) {
	for _, server := range s.servers[place] {
		server.Close()
	}
}

func (s *stage) addresses(pod string) string {
	return fmt.Sprint(s.pods[pod].IPv4, " ", s.pods[pod].IPv6)
}

// change is the step change:
//
//	change NODE address PREFIX
//	change PLACE sysctl NAME VALUE
//	change NODE interface NAME PREFIX...    adds an interface with addresses
//	change NODE remove-interface NAME
//	change NODE blackhole PLACE             drops packets
//	change NODE unreachable PREFIX          returns ICMP errors
//	change PLACE route PLACE PLACE          leads to the former through the latter
func (s *stage) change(place, action string, what ...string) (err error) {
	at := s.places[place]
	switch action {
	case "address":
		err = at.AddAddr(netip.MustParsePrefix(what[0]))
	case "sysctl":
		err = at.SetSysctl(what[0], what[1])
	case "interface":
		var addrs []netip.Prefix
		for _, text := range what[1:] {
			addrs = append(addrs, netip.MustParsePrefix(text))
		}
		err = s.node(place).AddInterface(what[0], addrs...)
	case "remove-interface":
		err = s.node(place).RemoveInterface(what[0])
	case "unreachable":
		to := netip.MustParsePrefix(what[0])
		mask := net.CIDRMask(to.Bits(), to.Addr().BitLen())
		err = at.Do(func() error {
			return netlink.RouteReplace(&netlink.Route{
				Dst: &net.IPNet{IP: to.Addr().AsSlice(), Mask: mask}, Type: unix.RTN_UNREACHABLE,
			})
		})
	default:
		for _, addr := range s.addrs(what[0]) {
			to := netip.PrefixFrom(addr, addr.BitLen())
			if action == "blackhole" {
				err = at.Blackhole(to)
			} else {
				err = at.ReplaceRoute(to, s.places[what[1]].AddrLike(addr))
			}
			if err != nil {
				return err
			}
		}
	}
	return err
}

// addrs returns the addresses of places.
func (s *stage) addrs(names string) (all []netip.Addr) {
	for name := range strings.SplitSeq(names, ",") {
		if place := s.places[name]; place != nil {
			all = append(all, place.Addrs()...)
		} else {
			all = append(all, netip.MustParseAddr(name))
		}
	}
	return all
}

// options returns the options of attempts, and how often each is made.
func options(args []string, from *lab.Namespace, to netip.Addr) (o lab.ProbeOptions, times int, err error) {
	times = 1
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		if key == "from" {
			o.Local, err = netip.ParseAddrPort(value)
			return o, times, err
		}
		number, err := strconv.ParseUint(value, 10, 16)
		if err != nil {
			return o, times, err
		}
		switch key {
		case "port":
			o.Local = netip.AddrPortFrom(from.AddrLike(to), uint16(number))
		case "anyport":
			o.Local = netip.AddrPortFrom(netip.Addr{}, uint16(number))
		case "times":
			times = int(number)
		}
	}
	return o, times, nil
}

func (s *stage) probe(running *script.Script, args ...string) error {
	arrow := slices.Index(args, "=>")
	want := strings.Join(args[arrow+1:], " ")
	var wait sync.WaitGroup
	var mu sync.Mutex
	failed := ""
	for from := range strings.SplitSeq(args[0], ",") {
		for network := range strings.SplitSeq(args[1], ",") {
			for _, addr := range s.addrs(args[2]) {
				at := s.places[from]
				o, times, err := options(args[3:arrow], at, addr)
				if err != nil {
					return err
				}
				if want == lab.TimedOut.String() {
					o.Timeout = 400 * time.Millisecond
				}
				wait.Go(func() {
					for range times {
						r := lab.Probe(context.Background(), at, network, netip.AddrPortFrom(addr, port), o)
						if got := s.outcome(r, at); got != want {
							mu.Lock()
							defer mu.Unlock()
							failed += fmt.Sprintf("%s %s to %v: got %s (%v), want %s\n",
								network, from, addr, got, r, want)
							return
						}
					}
				})
				if o.Local.Port() != 0 { // attempts from one port are made in turn
					wait.Wait()
				}
			}
		}
	}
	wait.Wait()
	if failed != "" {
		running.Fatalf("%s", failed)
	}
	return nil
}

// outcome describes the result of an attempt.
func (s *stage) outcome(r lab.Result, from *lab.Namespace) string {
	switch {
	case r.Outcome != lab.Answered:
		return r.Outcome.String()
	case slices.Contains(from.Addrs(), r.Answer.Source.Addr()) && r.Answer.Source.Port() != 31000:
		return r.Answer.Server + " as itself"
	}
	return fmt.Sprintf("%s as %v", r.Answer.Server, r.Answer.Source)
}

func (s *stage) open(name, place, network, to string, how ...string) error {
	from := s.places[place]
	for _, addr := range s.addrs(to) {
		o, _, err := options(how, from, addr)
		if err != nil {
			return err
		}
		conn, r := lab.Open(context.Background(), from, network, netip.AddrPortFrom(addr, port), o)
		if conn == nil {
			return fmt.Errorf("%s to %v: %v", network, addr, r)
		}
		s.conns[name] = append(s.conns[name], conn)
	}
	return nil
}

func (s *stage) lost(name string) (text string, err error) {
	for _, conn := range s.conns[name] {
		n, errLost := conn.Lost()
		text, err = text+fmt.Sprintln(n), errors.Join(err, errLost)
	}
	return text, err
}

func (s *stage) on(place, program string, args ...string) (string, error) {
	out, err := s.places[place].Command(context.Background(), program, args...).CombinedOutput()
	return string(out), err
}

func (s *stage) ask(name, _ string, outcome ...string) error {
	for _, conn := range s.conns[name] {
		r := conn.Ask(context.Background())
		got := r.Outcome.String()
		if r.Outcome == lab.Answered {
			got = r.Answer.Server
		}
		if want := strings.Join(outcome, " "); got != want {
			return fmt.Errorf("%v: got %v, want %s", conn.RemoteAddr(), r, want)
		}
	}
	return nil
}
