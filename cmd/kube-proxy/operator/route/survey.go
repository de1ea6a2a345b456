package route

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Survey collects facts about packets. It reads interfaces, neighbours and
// settings once, so it must not be used for long, and not by several
// goroutines. If a neighbour is being asked, it waits a moment for the answer.
type Survey struct {
	*Routes
	root       string
	links      map[int]*netlink.LinkAttrs
	neighbours map[neighbourTable]map[netip.Addr]Neighbour
	settings   map[string]int
	waited     time.Duration
}

// patience is how long a Survey waits for answers of neighbours, in all.
const patience = 300 * time.Millisecond

// neighbourTable identifies the neighbours on an interface.
type neighbourTable struct{ link, family int }

// NewSurvey returns a Survey that uses open routes. Settings are read from the
// directory proc/sys below root.
func NewSurvey(routes *Routes, root string) *Survey {
	return &Survey{
		Routes: routes, root: root, links: make(map[int]*netlink.LinkAttrs),
		neighbours: make(map[neighbourTable]map[netip.Addr]Neighbour), settings: make(map[string]int),
	}
}

// Facts asks the kernel about a packet.
func (s *Survey) Facts(p Packet) (f Facts, err error) {
	f.Packet = p
	out, err := s.leg(&f.There, p, p.OfNode)
	if err != nil || f.There.Unreachable != 0 {
		return f, err
	}
	if !f.There.Local {
		if err := s.hop(&f, out); err != nil {
			return f, err
		}
	}
	if p.Source.IsValid() {
		back := Packet{Source: p.Destination, Destination: p.Source, In: f.There.Out}
		_, err = s.leg(&f.Back, back, f.There.Local)
	}
	return f, err
}

// leg asks the kernel about one direction of a packet, and returns the route of
// a packet of this node.
func (s *Survey) leg(l *Leg, p Packet, ofNode bool) (out netlink.Route, err error) {
	*l = Leg{Source: p.Source, Destination: p.Destination, In: p.In, OfNode: ofNode}
	options := netlink.RouteGetOptions{Mark: p.Mark}
	if ofNode && p.Source.IsValid() {
		options.SrcAddr = p.Source.AsSlice()
	}
	if out, l.Unreachable, err = s.lookup(p.Destination, options); err != nil {
		return out, err
	}
	if l.Unreachable == 0 {
		if err := s.describe(l, &out); err != nil {
			return out, err
		}
	}
	if !ofNode {
		if err = s.settingsOf(l); err == nil && l.In != "" && p.Source.IsValid() {
			err = s.arriving(l, p.Mark)
		}
	}
	return out, err
}

// describe sets where a route leads.
func (s *Survey) describe(l *Leg, r *netlink.Route) error {
	if l.Local = r.Type == unix.RTN_LOCAL; l.Local {
		return nil
	}
	out, err := s.link(r.LinkIndex)
	if err != nil {
		return err
	}
	l.Out = out.Name
	l.Via = viaOf(r)
	return nil
}

// viaOf returns the next hop of a route, which can be of the other family (RFC
// 5549). It is invalid if the destination is on the link.
func viaOf(r *netlink.Route) netip.Addr {
	ip := r.Gw
	if via, ok := r.Via.(*netlink.Via); ok {
		ip = via.Addr
	}
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}

// arriving asks the kernel about a packet that arrives on an interface.
func (s *Survey) arriving(l *Leg, mark uint32) error {
	options := netlink.RouteGetOptions{Iif: l.In, SrcAddr: l.Source.AsSlice(), Mark: mark}
	r, refused, err := s.lookup(l.Destination, options)
	switch {
	case err != nil:
		return err
	case refused == 0:
		return s.describe(l, &r)
	}
	l.Refused = refused
	back, unreachable, err := s.lookup(l.Source, netlink.RouteGetOptions{})
	if err != nil || unreachable != 0 {
		return err
	}
	out, err := s.link(back.LinkIndex)
	if err == nil {
		l.ToSource, l.SourceIsLocal = out.Name, back.Type == unix.RTN_LOCAL
	}
	return err
}

// settingsOf reads the settings for packets that arrive on the interface of a
// leg.
func (s *Survey) settingsOf(l *Leg) (err error) {
	if l.Destination.Is6() { // no setting of an interface matters, and there is no rp_filter
		l.NotForwarding, err = s.off("net/ipv6/conf/all/forwarding")
		return err
	}
	if l.NotForwarding, err = s.off("net/ipv4/ip_forward"); l.In == "" || err != nil {
		return err
	}
	of := func(name, setting string) string { return "net/ipv4/conf/" + name + "/" + setting }
	forwards, err := s.off(of(l.In, "forwarding"))
	if forwards == "" { // it decides, whatever the setting of all interfaces is
		l.NotForwarding = ""
	} else if l.NotForwarding == "" {
		l.NotForwarding = forwards
	}
	for _, name := range []string{l.In, "all"} { // the kernel uses the larger value
		value, errValue := s.setting(of(name, "rp_filter"), 0)
		err = errors.Join(err, errValue)
		if value > l.Filter || l.FilterSetting == "" {
			l.Filter, l.FilterSetting = value, sysctlName(of(name, "rp_filter"))
		}
	}
	return err
}

// off returns the name of a setting that is 0, otherwise "".
func (s *Survey) off(path string) (name string, err error) {
	value, err := s.setting(path, 1)
	if value == 0 && err == nil {
		return sysctlName(path), nil
	}
	return "", err
}

// setting returns the value of a setting, or another one if the kernel does not
// have it.
func (s *Survey) setting(path string, missing int) (value int, err error) {
	if value, known := s.settings[path]; known {
		return value, nil
	}
	text, err := os.ReadFile(filepath.Join(s.root, "proc/sys", path))
	switch {
	case errors.Is(err, os.ErrNotExist):
		value = missing
	case err != nil:
		return 0, err
	default:
		if value, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
	}
	s.settings[path] = value
	return value, nil
}

// sysctlName returns the name of a setting for the program sysctl, which swaps
// dots and slashes.
func sysctlName(path string) string { return strings.NewReplacer("/", ".", ".", "/").Replace(path) }

// lookup asks the kernel for a route. refused is its error about the packet.
func (s *Survey) lookup(
	to netip.Addr, options netlink.RouteGetOptions,
) (r netlink.Route, refused unix.Errno, err error) {
	routes, err := s.handle.RouteGetWithOptions(to.AsSlice(), &options)
	switch {
	case isUnreachable(err) && errors.As(err, &refused):
		return r, refused, nil
	case err != nil:
		return r, 0, fmt.Errorf("find the route to %s: %w", to, err)
	case len(routes) == 0:
		return r, 0, fmt.Errorf("find the route to %s: no answer", to)
	}
	return routes[0], 0, nil
}

// ByDefault reports whether packets of this node to an address leave by a
// default route.
func (s *Survey) ByDefault(to netip.Addr) (bool, error) {
	r, refused, err := s.lookup(to, netlink.RouteGetOptions{FIBMatch: true})
	if err != nil || refused != 0 {
		return false, err
	}
	if r.Dst == nil {
		return true, nil
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0, nil
}

// Address returns an IPv4 address of an interface that other hosts use, an
// invalid one if it has none or is down.
func (s *Survey) Address(name string) (netip.Addr, error) {
	link, err := s.handle.LinkByName(name)
	if err != nil || link.Attrs().RawFlags&unix.IFF_UP == 0 {
		return netip.Addr{}, err
	}
	addrs, err := s.handle.AddrList(link, unix.AF_INET)
	for _, a := range addrs {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && a.Scope == unix.RT_SCOPE_UNIVERSE {
			return addr.Unmap(), err
		}
	}
	return netip.Addr{}, err
}

// link returns an interface.
func (s *Survey) link(index int) (*netlink.LinkAttrs, error) {
	if found := s.links[index]; found != nil {
		return found, nil
	}
	link, err := s.handle.LinkByIndex(index)
	if err != nil {
		return nil, fmt.Errorf("find interface %d: %w", index, err)
	}
	s.links[index] = link.Attrs()
	return link.Attrs(), nil
}

// hop sets the state of the interface and of the neighbour to which a route
// leads.
func (s *Survey) hop(f *Facts, r netlink.Route) error {
	out, err := s.link(r.LinkIndex)
	if err != nil {
		return err
	}
	f.NoCarrier = out.RawFlags&unix.IFF_UP != 0 && out.RawFlags&unix.IFF_RUNNING == 0
	if out.RawFlags&unix.IFF_NOARP != 0 {
		return nil
	}
	next := f.Destination
	if f.There.Via.IsValid() {
		next = f.There.Via
	}
	f.Neighbour, err = s.neighbour(out.Index, next)
	return err
}

// neighbour returns the state of a neighbour. It waits for one that is being
// asked.
func (s *Survey) neighbour(link int, addr netip.Addr) (Neighbour, error) {
	const interval = 20 * time.Millisecond
	for {
		table := neighbourTable{link, unix.AF_INET}
		if addr.Is6() {
			table.family = unix.AF_INET6
		}
		all, err := s.neighboursOf(table)
		if state := all[addr]; state != NeighbourResolving || s.waited >= patience || err != nil {
			return state, err
		}
		time.Sleep(interval)
		s.waited += interval
		delete(s.neighbours, table)
	}
}

func (s *Survey) neighboursOf(table neighbourTable) (map[netip.Addr]Neighbour, error) {
	if known := s.neighbours[table]; known != nil {
		return known, nil
	}
	list, err := s.handle.NeighList(table.link, table.family)
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	found := make(map[netip.Addr]Neighbour, len(list))
	for _, n := range list {
		if addr, ok := netip.AddrFromSlice(n.IP); ok {
			found[addr.Unmap()] = neighbourOf(n.State)
		}
	}
	s.neighbours[table] = found
	return found, nil
}

func neighbourOf(state int) Neighbour {
	switch {
	case state&unix.NUD_FAILED != 0:
		return NeighbourFailed
	case state&(unix.NUD_INCOMPLETE|unix.NUD_PROBE) != 0:
		return NeighbourResolving
	}
	return NeighbourKnown
}
