package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// object is a set, a map or a chain as nft lists it.
type object struct {
	name  string   // with its kind: "map service-ips"
	lines []string // of the definition or the chain
	rows  []string // elements, sorted
}

// parseListing returns the objects of a table that nft listed, sorted.
func parseListing(listing string) []object {
	var objects []object
	for _, match := range regexp.MustCompile(`(?ms)^\t((?:set|map|chain) \S+) \{\n(.*?)^\t\}`).FindAllStringSubmatch(listing, -1) {
		definition, elements, _ := strings.Cut(match[2], "elements = {")
		o := object{name: match[1]}
		for line := range strings.Lines(definition) {
			o.lines = append(o.lines, strings.TrimSpace(line))
		}
		elements = strings.TrimSuffix(strings.TrimSpace(elements), "}")
		for row := range strings.SplitSeq(elements, ",") { // comments contain no comma
			if row = strings.TrimSpace(row); row != "" {
				o.rows = append(o.rows, row)
			}
		}
		slices.Sort(o.rows)
		objects = append(objects, o)
	}
	slices.SortFunc(objects, func(a, b object) int { return strings.Compare(a.name, b.name) })
	return objects
}

// affinitySets is the prefix of the sets with the clients of Services with
// sessionAffinity. Packets add their rows, which a flush removes for good.
const affinitySets = "set clients-"

// listTables lists the tables of node1 in an order that does not depend on the
// order of changes.
func (t *tour) listTables(ctx context.Context) (string, error) {
	var text strings.Builder
	for _, family := range []string{"ip", "ip6"} {
		listing, err := t.cluster.run(ctx, "node1", t.nft, "list", "table", family, "kube-proxy")
		if err != nil {
			return "", err
		}
		for _, o := range parseListing(listing) {
			if strings.HasPrefix(o.name, affinitySets) {
				o.rows = nil
			}
			fmt.Fprintf(&text, "%s %s:\n%s\n", family, o.name, strings.Join(append(o.lines, o.rows...), "\n"))
		}
	}
	return text.String(), nil
}

// hop is a part of the table that a new connection passes.
type hop struct {
	text, object string
	filter       string   // selects lines of the object
	want         []string // end of each selected line
}

// hops leads from the ClusterIP of shop/web to its pods.
func hops() []hop {
	return []hop{
		{`Follow a connection from a pod to 10.96.0.80, port 80. Chain services looks up the destination:`,
			"chain services", "@service-ips", []string{"vmap @service-ips"}},
		{`The comment is the port of the Service: namespace/name:port. Chain balance-3 serves all Services with
three endpoints:`,
			"map service-ips", "10.96.0.80 . ", []string{`comment "shop/web:http" : goto balance-3`}},
		{`The chain draws a number from 0 to 2, and looks up the destination with that number:`,
			"chain balance-3", "dnat", []string{"numgen random mod 3 map @service-endpoints"}},
		{`The map contains a row for each endpoint. The connection is sent there:`,
			"map service-endpoints", "10.96.0.80 . ",
			[]string{" : 10.244.1.11 . 8080", " : 10.244.1.12 . 8080", " : 10.244.2.11 . 8080"}},
	}
}

// explanations describe the rows of sets and maps.
func explanations() [][2]string {
	return [][2]string{
		{"set cluster-ips", "a ClusterIP; masquerades clients from outside, refuses other ports"},
		{"map service-ips", "a ClusterIP, external IP or LoadBalancer IP with a port, and its chain"},
		{"map service-endpoints", "an endpoint of such an address (from 65536: all, for policy Local)"},
		{"set nodeport-ips", "an address of this node that has NodePorts"},
		{"map service-nodeports", "a NodePort, and its chain"},
		{"map nodeport-endpoints", "an endpoint of a NodePort"},
		{"map no-endpoint-services", "an address without endpoints: refused"},
		{"map no-endpoint-nodeports", "a NodePort without endpoints: refused"},
		{"map firewall-ips", "a LoadBalancer IP with loadBalancerSourceRanges"},
		{"set firewall-sources-tcp", "a source range for TCP"},
		{"set local-ips", "an address with externalTrafficPolicy: Local"},
		{"map local-policy-ips", "the same, for traffic from outside: endpoints of this node"},
		{"map cluster-policy-ips", "the same, for traffic from this node or a pod: all endpoints"},
		{"set hairpin-connections", "a pod of this node that connects to itself: masqueraded"},
		{affinitySets, "a client of a Service with sessionAffinity, and its endpoint"},
	}
}

// showTable explains the IPv4 table of node1.
func (t *tour) showTable(ctx context.Context) error {
	// The flush removed the rows of clients with session affinity.
	if _, err := t.callAll(ctx, group{service: "shop/cart", calls: []call{{from: "client", to: clusterIP, protocol: "tcp"}}}); err != nil {
		return err
	}
	listing, err := t.cluster.run(ctx, "node1", t.nft, "list", "table", "ip", "kube-proxy")
	if err != nil {
		return err
	}
	objects := parseListing(listing)
	t.scene("The table", fmt.Sprintf(`
All IPv4 rules are in table "ip kube-proxy", all IPv6 rules in "ip6 kube-proxy". Services and
endpoints are rows of sets and maps. Chains do not depend on the number of Services. This listing
has %d lines. All base chains have type nat: only the first packet of a connection passes them.`,
		strings.Count(listing, "\n")))
	t.commands(t.cluster.commandLine("node1", "nft list table ip kube-proxy"))
	var failure error
	for _, h := range hops() {
		lines, err := h.find(objects)
		if failure == nil {
			failure = err
		}
		t.text(h.text)
		t.block(slices.Concat([]string{h.object + " {"}, lines, []string{"}"})...)
	}
	t.check(failure, "The rows lead to the pods of shop/web and to no others.")
	t.text("These are all sets and maps that the Services of the demo use. To find the rows of a Service, search for its name:")
	t.commands(t.cluster.commandLine("node1", "nft list table ip kube-proxy | grep shop/web"))
	t.table(t.explain(objects))
	return nil
}

// find returns the object's lines or rows that the hop selects, and an error if
// they are not as wanted.
func (h hop) find(objects []object) ([]string, error) {
	var lines, missing []string
	for _, o := range objects {
		for _, line := range slices.Concat(o.lines, o.rows) {
			if o.name == h.object && strings.Contains(line, h.filter) {
				lines = append(lines, "    "+line)
			}
		}
	}
	for _, end := range h.want {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasSuffix(line, end) }) {
			missing = append(missing, end)
		}
	}
	if len(missing) > 0 || len(lines) != len(h.want) {
		return lines, fmt.Errorf("%s: got %q, want %d lines that end in %q", h.object, lines, len(h.want), h.want)
	}
	return lines, nil
}

// explain returns a table with a row of each set and map, if possible of
// shop/web.
func (t *tour) explain(objects []object) [][]string {
	ofWeb := regexp.MustCompile(`shop/web|10\.96\.0\.80 |tcp \. 30080 |10\.244\.1\.11 `)
	table := [][]string{{"RESULT", "SET OR MAP", "ROWS", "A ROW IS", "FOR EXAMPLE"}}
	for _, e := range explanations() {
		rows := []string{}
		for _, o := range objects {
			if o.name == e[0] || e[0] == affinitySets && strings.HasPrefix(o.name, affinitySets) {
				rows = append(rows, o.rows...)
			}
		}
		if len(rows) == 0 {
			table = append(table, []string{t.verdict(fmt.Errorf("%s has no rows", e[0])), e[0], "0", e[1]})
			continue
		}
		example := rows[max(0, slices.IndexFunc(rows, ofWeb.MatchString))]
		table = append(table, []string{t.verdict(nil), e[0], fmt.Sprint(len(rows)), e[1], example})
	}
	return table
}
