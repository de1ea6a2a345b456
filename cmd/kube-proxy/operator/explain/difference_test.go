package explain_test

import (
	"bytes"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// compared explains a packet with the kernel, and adds what the proxy of a
// table knows.
func compared(t *testing.T, tab *table.Table, text string, d *explain.Desired) *explain.Result {
	t.Helper()
	q := parseQuery(t, text)
	k, err := explain.OpenKernel(tab.Family())
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	r, err := k.Explain(q)
	if err != nil {
		t.Fatal(err)
	}
	if d.Result, err = explain.Explain(mustExpect(t, tab), k, q); err != nil {
		t.Fatal(err)
	}
	r.Add(d)
	return r
}

// The first rule or row that another program changed is the difference. The
// text is "chain: kernel | proxy".
func TestDifference(t *testing.T) {
	const web, toWeb = "10.96.0.10:80 tcp from 10.244.1.7", "10.96.0.10 . tcp . 80"
	const dispatch = "meta priority set ip daddr . meta l4proto . th dport map @service-classes " +
		"meta priority vmap @class-chains"
	tests := []struct{ name, change, query, want string }{
		{"nothing", "", web, ""},
		{"row deleted", "delete element ip kube-proxy service-classes { " + toWeb + " }", web,
			"services: no row | " + toWeb + ` comment "default/web:http" : 0:3`},
		{"row of a class deleted", "delete element ip kube-proxy class-chains { 0:3 }", web,
			"services: no row | 0:3 : goto balance-3"},
		{"row of an endpoint deleted", "delete element ip kube-proxy service-targets { " + toWeb + " . 0:2 }", web,
			"pick: no row | " + toWeb + " . 0:2 : 10.244.2.5 . 8080"},
		{"row changed", "delete element ip kube-proxy service-targets { " + toWeb + " . 0:3 }; " +
			"add element ip kube-proxy service-targets { " + toWeb + " . 0:3 : 10.0.0.1 . 80 }", web,
			"pick: " + toWeb + " . 0:3 : 10.0.0.1 . 80 | " + toWeb + " . 0:3 : 10.244.3.5 . 8080"},
		{"row added", "add element ip kube-proxy cluster-ips { 10.96.0.99 }", "10.96.0.99:80 tcp from 10.244.1.7",
			"nat-prerouting: 10.96.0.99 | no row"},
		{"another row", "flush map ip kube-proxy service-targets", "10.96.0.50:80 tcp from 10.244.1.7", ""},
		{"rule added", "insert rule ip kube-proxy services tcp dport 80 accept", web,
			"services: tcp dport 80 accept | " + dispatch},
		{"rule without effect added", "insert rule ip kube-proxy services tcp dport 81 accept", web,
			"services: tcp dport 81 accept | no rule"},
		{"rule deleted", "flush chain ip kube-proxy nat-prerouting", web, "nat-prerouting: no rule | jump services"},
		{"rule added behind", "add rule ip kube-proxy services drop", web, ""},
		{"chain flushed", "flush chain ip kube-proxy balance-3", web,
			"nat-prerouting: ip daddr @cluster-ips fib daddr type != local goto reject-unknown-port " +
				`comment "Reject traffic to invalid ports of ClusterIPs" | ` +
				"jump outside-cluster"},
		{"rule replaced", "flush chain ip kube-proxy balance-3; add rule ip kube-proxy balance-3 drop", web,
			"balance-3: drop | jump outside-cluster"},
		{"rules swapped", "flush chain ip kube-proxy masquerading; " +
			"add rule ip kube-proxy masquerading ct status dnat ip saddr . ip daddr . meta l4proto . th dport " +
			"@hairpin-connections masquerade fully-random; " +
			"add rule ip kube-proxy masquerading meta mark & 0x4000 != 0 meta mark set meta mark ^ 0x4000 " +
			"masquerade fully-random", web,
			"masquerading: ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections " +
				"masquerade fully-random | meta mark & 0x00004000 != 0x00000000 " +
				"meta mark set meta mark ^ 0x00004000 masquerade fully-random"},
		{"client", "add element ip kube-proxy sticky-clients-36 { 10.244.1.7 . 0:1001 }",
			"10.96.0.40:80 tcp from 10.244.1.7", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tabletest.NewNode(t)
			tables := newTables(t, tabletest.Rules())
			passTo(t, tables, tabletest.PassSample)
			tabletest.LoadNFT(t, test.change)
			d := compared(t, tables[0], test.query, &explain.Desired{}).Difference
			if got := differenceText(d); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func differenceText(d *explain.Difference) string {
	if d == nil {
		return ""
	}
	none := "no rule"
	if d.Set != "" {
		none = "no row"
	}
	or := func(text string) string {
		if text == "" {
			return none
		}
		return text
	}
	return d.Chain + ": " + or(d.Kernel) + " | " + or(d.Desired)
}

// A result shows what the proxy knows.
func TestAdd(t *testing.T) {
	tabletest.NewNode(t)
	tables := newTables(t, tabletest.Rules())
	passTo(t, tables, tabletest.PassSample)
	tabletest.LoadNFT(t, "delete element ip kube-proxy service-classes { 10.96.0.10 . tcp . 80 }")
	desired := explain.Desired{
		ServicePort: "default/web:http", Frontend: "ClusterIP",
		Pending: "the last sync failed: no buffer space available",
		Notes:   []string{"default/web:http is left out until it can be served: because"},
	}
	for n := range byte(11) {
		desired.Unused = append(desired.Unused, explain.Unused{
			EndpointPlace: ruleset.EndpointPlace{
				Addr: netip.AddrFrom4([4]byte{10, 244, 9, n}), Port: uint16(n) * 4040, Node: "node9",
			},
			Text: "not ready",
		})
	}
	r := compared(t, tables[0], "10.96.0.10:80 tcp from 10.244.1.7", &desired)
	var got bytes.Buffer
	r.Print(&got, false)
	checkGolden(t, "testdata/add.txt", got.String())
}

// A connection to a NodePort on localhost goes to the forwarder.
func TestForwarder(t *testing.T) {
	tabletest.NewNode(t)
	tables := newTables(t, tabletest.Rules())
	passTo(t, tables, tabletest.PassSample)
	endpoints := []netip.AddrPort{netip.MustParseAddrPort("10.244.1.7:8080"),
		netip.MustParseAddrPort("10.244.2.7:8080")}
	var got strings.Builder
	for _, f := range []*explain.Forwarder{
		{Endpoints: endpoints}, {Endpoints: endpoints, Affinity: "new"}, {Endpoints: endpoints[:1], Affinity: "known"},
		{Closed: explain.Reason{Code: ruleset.NoEndpoints, Text: "no endpoints"}},
		{Closed: explain.Reason{Code: ruleset.Localhost, Text: "address already in use"}},
	} {
		r := compared(t, tables[0], "127.0.0.1:30090 tcp from 127.0.0.1", &explain.Desired{Forwarder: f})
		got.WriteString(r.Answer + "\n")
		for _, o := range r.Outcomes {
			got.WriteString("  " + string(o.Action) + " " + o.Probability.RatString() + " " + o.RejectWith + "\n")
		}
	}
	checkGolden(t, "testdata/forwarder.txt", got.String())
	if r := compared(t, tables[0], "10.96.0.10:80 tcp from 10.244.1.7", &explain.Desired{}); len(r.Outcomes) != 3 {
		t.Errorf("without a forwarder: got %+v", r.Outcomes)
	}
}

// checkGolden compares a text with a file.
func checkGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}
