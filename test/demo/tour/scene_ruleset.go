package tour

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/test/demo/page"
)

// showRuleset explains the table of node1.
func (t *tour) showRuleset(ctx context.Context) error {
	t.page.Scene("The rules, for the one who looks at them at night")
	if err := t.useCart(ctx); err != nil {
		return err
	}
	listing, err := t.stage.Run(ctx, "node1", t.nft, "list", "table", "ip", "kube-proxy")
	if err != nil {
		return err
	}
	t.page.Text("All rules are in two tables, \"ip kube-proxy\" and \"ip6 kube-proxy\", built alike. What Services and " +
		"EndpointSlices say stands in rows of sets and maps; the chains are the same few, however many Services there are.")
	t.page.Try(t.stage.CommandLine("node1", "nft list table ip kube-proxy"))
	objects := parseListing(listing)
	path, err := followService(objects, t.services.web)
	if err != nil {
		return err
	}
	t.page.Text("Follow one Service: a pod connects to 10.96.0.80, port 80. Every new connection comes through chain services, " +
		"which looks its destination up in map service-ips:")
	t.page.Listing("chain services {", "    "+path.lookup, "}", "map service-ips {", "    "+path.service, "}")
	t.page.Text("The row says whose address it is (namespace/name:port), and that it has three endpoints: balance-3 is shared by all " +
		"Services with three. It draws 0, 1 or 2, and looks up address, protocol, port and the number drawn:")
	t.page.Listing("chain balance-3 {", "    "+path.balance, "}")
	t.page.Text("The map service-endpoints has the pods, one a row, numbered from 0. The connection goes there (dnat):")
	t.page.Listing(slices.Concat([]string{"map service-endpoints {"}, indented(path.endpoints), []string{"}"})...)
	t.claim(path.complete(t.services.web), "These are shop/web's pods: an endpoint more is one row more here, and \"balance-4\" there.")
	t.showMaps(objects)
	t.showChains(listing, objects)
	return nil
}

// useCart connects to the Service with affinity: the flush of before removed what the table knew about that.
func (t *tour) useCart(ctx context.Context) error {
	_, err := t.callAll(ctx, []call{t.services.cart.clusterIP("client", want{})})
	return err
}

// indented puts some space before lines.
func indented(lines []string) []string {
	var more []string
	for _, line := range lines {
		more = append(more, "    "+line)
	}
	return more
}

// path is what a connection to a Service meets, as nft lists it.
type path struct {
	lookup    string
	service   string
	balance   string
	endpoints []string
}

// followService finds what a connection to the Service's ClusterIP meets.
func followService(objects []object, s address) (path, error) {
	var p path
	vip := s.ClusterIPs.IPv4.String()
	for _, part := range []struct {
		object string
		choose func(object) []string
		into   *string
	}{
		{"services", func(o object) []string { return linesWith(o.body, "@service-ips") }, &p.lookup},
		{"service-ips", func(o object) []string { return o.rowsOf(vip) }, &p.service},
		{fmt.Sprintf("balance-%d", len(s.Endpoints)), func(o object) []string { return linesWith(o.body, "dnat") }, &p.balance},
	} {
		o, err := find(objects, part.object)
		if err != nil {
			return p, err
		}
		found := part.choose(o)
		if len(found) != 1 {
			return p, fmt.Errorf("%s %s: want one line for %s, there are %d", o.kind, o.name, vip, len(found))
		}
		*part.into = found[0]
	}
	o, err := find(objects, "service-endpoints")
	p.endpoints = o.rowsOf(vip)
	return p, err
}

// complete tells whether the path leads to all endpoints of the Service, and to nothing else.
func (p path) complete(s address) bool {
	var want, got []string
	for _, e := range s.Endpoints {
		want = append(want, fmt.Sprintf("%s . %d", e.IPv4, s.port.TargetPort))
	}
	for _, row := range p.endpoints {
		_, endpoint, _ := strings.Cut(row, " : ")
		got = append(got, endpoint)
	}
	slices.Sort(want)
	slices.Sort(got)
	count := len(s.Endpoints)
	return slices.Equal(want, got) && strings.Contains(p.service, fmt.Sprintf("%q", s.String()+":"+s.port.Name)) &&
		strings.HasSuffix(p.service, fmt.Sprintf("goto balance-%d", count)) &&
		strings.Contains(p.balance, fmt.Sprintf("numgen random mod %d map @service-endpoints", count))
}

// linesWith returns the lines with that text.
func linesWith(lines []string, text string) []string {
	var found []string
	for _, line := range lines {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// affinitySets is what the names of the sets of clients with session affinity
// begin with; each Service uses one of up to 64.
const affinitySets = "clients-"

// explanations say what a row of each set and map is for.
func explanations() [][2]string {
	return [][2]string{
		{"cluster-ips", "a ClusterIP: clients from outside are masqueraded, other ports refused"},
		{"service-ips", "a ClusterIP, external or LB IP with a port, and the chain that chooses"},
		{"service-endpoints", "an endpoint of such an address (65536 and on: all, where a policy is Local)"},
		{"nodeport-ips", "an address of this node on which NodePorts listen"},
		{"service-nodeports", "a NodePort, and the chain that chooses"},
		{"nodeport-endpoints", "an endpoint of a NodePort"},
		{"no-endpoint-services", "an address without endpoints: refused"},
		{"no-endpoint-nodeports", "a NodePort without endpoints: refused"},
		{"firewall-ips", "an LB IP with loadBalancerSourceRanges"},
		{"firewall-sources-tcp", "a range that may connect to it over TCP (there is one set a protocol)"},
		{"local-ips", "an address with externalTrafficPolicy: Local (local-nodeports: a NodePort)"},
		{"local-policy-ips", "its traffic from elsewhere: this node's endpoints"},
		{"cluster-policy-ips", "its traffic from this node or a pod: all endpoints"},
		{"hairpin-connections", "a pod of this node that reached itself: masqueraded"},
		{affinitySets, "a client of a Service with sessionAffinity, and the endpoint that it keeps"},
	}
}

// showMaps lists the sets and maps, and what their rows mean.
func (t *tour) showMaps(objects []object) {
	t.page.Text("The sets and maps in the order in which to look at them. The rows of those that lead on carry the Service's name, " +
		"so that one can search for it:")
	t.page.Try(t.stage.CommandLine("node1", "nft list table ip kube-proxy | grep shop/web"))
	table := page.Table{Columns: []string{"SET OR MAP", "ROWS", "ONE ROW IS\nFOR EXAMPLE"}, Right: []int{1}}
	for _, e := range explanations() {
		o, err := find(objects, e[0])
		if e[0] == affinitySets {
			o, err = findFilled(objects, e[0])
		}
		mark := t.check(err == nil && len(o.elements) > 0, "%s has no rows", e[0])
		if mark == page.OK {
			mark = page.None // an explanation needs no praise
		}
		table.Add(mark, o.name, strconv.Itoa(len(o.elements)), e[1])
		table.Add(page.None, "", "", "    "+example(o.elements, t.services.web))
	}
	t.page.Table(table)
}

// example chooses a row, one of the Service where there is one.
func example(rows []string, s address) string {
	sorted := slices.Sorted(slices.Values(rows))
	words := []string{s.String(), s.ClusterIPs.IPv4.String() + " ", fmt.Sprintf(" %d ", s.port.NodePort)}
	for _, e := range s.Endpoints {
		words = append(words, e.IPv4.String()+" ")
	}
	for _, word := range words {
		ofService := func(row string) bool { return strings.Contains(row+" ", word) }
		if i := slices.IndexFunc(sorted, ofService); i >= 0 {
			return sorted[i]
		}
	}
	if len(sorted) == 0 {
		return ""
	}
	return sorted[0]
}

// showChains says how the chains hang together, and how long the listing is.
func (t *tour) showChains(listing string, objects []object) {
	chains, hooked := 0, 0
	for _, o := range objects {
		if o.kind == "chain" {
			chains++
			hooked += len(linesWith(o.body, " hook "))
		}
	}
	t.page.Text("The listing is %d lines: %d sets and maps, %d chains. Of these, %d are base chains, all of type nat, so that "+
		"only the first packet of a connection passes them: nat-prerouting and nat-output jump to chain services, which checks "+
		"source ranges, dispatches and refuses; nat-postrouting masquerades connections that were marked 0x4000.",
		strings.Count(listing, "\n"), len(objects)-chains, chains, hooked)
}
