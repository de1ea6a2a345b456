package flows

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/test/script"
)

// connections returns n connections to an endpoint in a state.
func connections(n int, endpoint, state string) []conntrack.Connection {
	c := conntrack.Connection{
		Frontend: netip.MustParseAddrPort("10.96.0.10:80"), Endpoint: netip.MustParseAddrPort(endpoint), State: state,
	}
	return slices.Repeat([]conntrack.Connection{c}, n)
}

// group counts connections. used are the endpoints in use.
func group(name string, used []string, all ...[]conntrack.Connection) *Group {
	g := newGroup(name, "tcp")
	g.Frontends = []Frontend{{Address: netip.MustParseAddrPort("10.96.0.10:80")}}
	for _, c := range slices.Concat(all...) {
		g.count(c)
	}
	var set map[netip.AddrPort]bool
	if used != nil {
		set = make(map[netip.AddrPort]bool)
		for _, endpoint := range used {
			set[netip.MustParseAddrPort(endpoint)] = true
		}
	}
	g.addEndpoints(set, nil)
	return g
}

// The skew is about endpoints in use, also those without connections.
func TestSkew(t *testing.T) {
	const a, b, c, v6 = "10.244.1.5:8080", "10.244.2.5:8080", "10.244.3.5:8080", "[fd00:244:1::5]:8080"
	for _, test := range []struct {
		name  string
		group *Group
		want  float64
	}{
		{"equal", group("", []string{a, b}, connections(5, a, "ESTABLISHED"), connections(5, b, "TIME_WAIT")), 1},
		{"one is idle", group("", []string{a, b}, connections(5, a, "ESTABLISHED")), 2},
		{"not in use", group("", []string{a}, connections(5, a, "ESTABLISHED"), connections(9, c, "ESTABLISHED")), 1},
		{"not known", group("", nil, connections(3, a, "ESTABLISHED"), connections(1, c, "ESTABLISHED")), 1.5},
		{"one family is idle", group("", []string{a, b, v6}, connections(5, a, "NONE"), connections(5, b, "NONE")), 1},
		{"no connections", group("", []string{a, b}), 0},
	} {
		if test.group.Skew != test.want {
			t.Errorf("%s: got %v, want %v", test.name, test.group.Skew, test.want)
		}
	}
}

// testdata/report.txt is a report as it is printed for people, testdata/top.txt
// one of Top.
func TestPrint(t *testing.T) {
	const a, b, c = "10.244.1.5:8080", "10.244.2.5:8080", "10.244.3.5:8080"
	web := group("default/web:http", []string{a, b},
		connections(400, a, "ESTABLISHED"), connections(100, a, "TIME_WAIT"), connections(6, b, "SYN_SENT"),
		connections(2, c, "ESTABLISHED"), connections(1, "10.96.0.10:80", "ESTABLISHED"))
	dns := group("kube-system/dns:dns", nil, connections(7, a, "UNREPLIED"), connections(9, a, "REPLIED"))
	dns.Protocol = "udp"
	nodePort := Frontend{Address: netip.MustParseAddrPort("0.0.0.0:30053"), Connections: 3}
	dns.Frontends = append(dns.Frontends, nodePort)
	idle := group("default/idle", []string{})
	web.Endpoints[2].Gone = true
	r := Report{Groups: []*Group{web, dns, idle}, Notes: []string{"a remark"}, Tracked: 1000, Total: 525}
	for _, file := range []string{"testdata/report.txt", "testdata/top.txt"} {
		var got strings.Builder
		r.Print(&got, false)
		script.Golden(t, file, got.String())
		r.top = true
	}
}

// A report has notes about what its numbers do not show.
func TestNotes(t *testing.T) {
	for _, test := range []struct {
		name           string
		unknown        error
		read, selected int
		want           []string
	}{
		{"filtered by the kernel", nil, 100_000, 99_000, nil},
		{"few", nil, 900, 0, nil},
		{"not filtered", nil, 200_000, 12, []string{
			"this kernel does not filter these connections: it sent 200000 to count 12",
		}},
		{"no table", errors.New("no table"), 10, 10, []string{
			"names of Services and endpoints in use are not known: no table",
		}},
	} {
		report := Report{Read: test.read}
		(&Reader{unknown: test.unknown}).addNotes(&report, test.selected)
		if !slices.Equal(report.Notes, test.want) {
			t.Errorf("%s: got %q, want %q", test.name, report.Notes, test.want)
		}
	}
}
