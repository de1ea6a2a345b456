package explain_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/script"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// TestScripts runs the scripts, on node1 of package tabletest. These are their
// steps, besides the standard ones:
//
//	sample [masquerade-all] [localhost]  writes the rules of the sample Services
//	apply FILE           adds Services and EndpointSlices
//	nft COMMANDS         is another program that changes rules; \n separates them
//	explain [wide] QUERY prints an explanation
//	outcomes QUERY       prints share, action, endpoint, reason and affinity
//	difference QUERY     prints the answer of the table that the proxy wants, if it is another one
//
// A QUERY is DESTINATION PROTOCOL from SOURCE.
func TestScripts(t *testing.T) {
	setup := func(e *script.Env) (map[string]script.Command, error) {
		tabletest.NewNode(e.T)
		n := &testNode{t: e.T}
		return script.Steps(map[string]any{
			"sample": n.sample, "apply": n.apply, "nft": n.nft, "explain": n.explain, "outcomes": n.outcomes,
			"difference": n.difference,
		}), nil
	}
	script.Run(t, script.Suite{Patience: 10 * time.Second, Setup: setup})
}

// testNode is the node of a test, with a table of each family.
type testNode struct {
	t      testing.TB
	tables []*table.Table
	wanted string // the answer of the last wanted table
}

// newNode returns a node with a configuration and the sample Services.
func newNode(t testing.TB, rules ruleset.Config) *testNode {
	t.Helper()
	n := &testNode{t: t}
	must.NoError(t, n.start(rules))
	return n
}

func (n *testNode) start(rules ruleset.Config) (err error) {
	if n.tables, err = table.New(table.Config{Rules: rules}, nft.IPv4, nft.IPv6); err != nil {
		return err
	}
	for _, tab := range n.tables {
		n.t.Cleanup(func() { tab.Close() })
		err = errors.Join(err, tab.Setup())
	}
	return errors.Join(err, n.pass(tabletest.PassSample))
}

// pass passes objects to the tables and syncs them.
func (n *testNode) pass(pass func(cluster.Sink)) (err error) {
	for _, tab := range n.tables {
		pass(tab)
		err = errors.Join(err, tab.Sync())
	}
	return err
}

func (n *testNode) sample(options ...string) error {
	rules := tabletest.Rules()
	rules.MasqueradeAll = slices.Contains(options, "masquerade-all")
	if slices.Contains(options, "localhost") {
		rules.LocalhostNodePorts = true
		rules.NodePortAddresses.CIDRs = tabletest.Prefixes("127.0.0.0/8", "::1/128")
	}
	return n.start(rules)
}

func (n *testNode) apply(s *script.Script, file string) error {
	return n.pass(func(to cluster.Sink) { s.Check(tabletest.Apply(to, s.ReadFile(file))) })
}

func (n *testNode) nft(words ...string) {
	tabletest.LoadNFT(n.t, strings.ReplaceAll(strings.Join(words, " "), `\n`, "\n"))
}

// parseQuery parses "DESTINATION PROTOCOL from SOURCE".
func parseQuery(text string) (q explain.Query, err error) {
	words := strings.Fields(text)
	if len(words) != 4 {
		return q, fmt.Errorf("query %q: want DESTINATION PROTOCOL from SOURCE", text)
	}
	to, errTo := netip.ParseAddrPort(words[0])
	protocol, errProtocol := cluster.ParseProtocol(words[1])
	from, errFrom := netip.ParseAddr(words[3])
	return explain.Query{Destination: to, Protocol: protocol, Source: from}, errors.Join(errTo, errProtocol, errFrom)
}

// ask explains a packet with the rules of the kernel. If d is not nil, it adds
// what the proxy wants.
func (n *testNode) ask(query string, d *explain.Desired) (r *explain.Result, err error) {
	q, err := parseQuery(query)
	if err != nil {
		return nil, err
	}
	k, err := node.OpenKernel(nft.FamilyOf(q.Destination.Addr()))
	if err != nil {
		return nil, err
	}
	defer k.Close()
	if r, err = explain.InKernel(k, q); err != nil || d == nil {
		return r, err
	}
	for _, tab := range n.tables {
		if tab.Family() == nft.FamilyOf(q.Destination.Addr()) {
			var wanted *explain.Result
			if wanted, err = explain.Explain(mustExpect(n.t, tab), k, q); err == nil {
				d.Outcomes, n.wanted = wanted.Outcomes, wanted.Answer
			}
		}
	}
	if err == nil {
		r.Add(d)
	}
	return r, err
}

// mustExpect returns the expected table.
func mustExpect(t testing.TB, tab *table.Table) *table.Expected {
	t.Helper()
	expected, err := tab.Expected(nil)
	must.NoError(t, err)
	return expected
}

func (n *testNode) explain(args ...string) (string, error) {
	query, wide := strings.CutPrefix(strings.Join(args, " "), "wide ")
	r, err := n.ask(query, nil)
	if err != nil {
		return "", err
	}
	var text bytes.Buffer
	r.Print(&text, wide)
	return text.String(), nil
}

func (n *testNode) outcomes(args ...string) (text string, err error) {
	r, err := n.ask(strings.Join(args, " "), nil)
	if err != nil {
		return "", err
	}
	for _, o := range r.Outcomes {
		at, masqueraded := "", ""
		if o.Action == explain.ToEndpoint {
			at = o.Endpoint.String()
		}
		if o.Masqueraded {
			masqueraded = "masqueraded"
		}
		text += fmt.Sprintln(o.Probability.RatString(), o.Action, at, masqueraded, o.Reason.Code, o.Affinity)
	}
	return text, nil
}

func (n *testNode) difference(args ...string) (string, error) {
	r, err := n.ask(strings.Join(args, " "), &explain.Desired{})
	if err != nil || r.Difference == nil {
		return "", err
	}
	return r.Difference.Desired + "\n", nil
}
