package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nftproxy/nftproxy/test/lab"
)

// group is a table of calls to one Service.
type group struct {
	service, text string
	calls         []call
}

// call is a check: a host connects many times to an address of a Service, over
// IPv4 and over IPv6.
type call struct {
	from     string // a host, or stranger
	to       destination
	protocol string
	want     want
}

// want is the expected result of a call in each family.
type want struct {
	answers []string // pods, or an outcome without an answer
	one     bool     // only one of the pods answers, instead of all
	seen    string   // host whose address the pods see
}

// all expects answers from all the pods, and that they see a host's address.
func all(seen string, pods ...string) want { return want{answers: pods, seen: seen} }

// oneOf expects answers from only one of the pods.
func oneOf(seen string, pods ...string) want { return want{answers: pods, one: true, seen: seen} }

func refused() want { return want{answers: []string{lab.Refused.String()}} }
func dropped() want { return want{answers: []string{lab.TimedOut.String()}} }

// stranger is a second address of the client, outside shop/checkout's
// loadBalancerSourceRanges.
const stranger = "stranger"

func strangerAddrs() [2]netip.Addr {
	return [2]netip.Addr{netip.MustParseAddr("172.30.0.200"), netip.MustParseAddr("fd00:30::1:200")}
}

// showAnswers connects to Services with endpoints.
func (t *tour) showAnswers(ctx context.Context) error {
	t.scene("Who answers", `
Each row is 60 connections over IPv4 and 60 over IPv6. A pod answers with its name and with the
address of the client that it sees. The numbers are the answers of each pod.`)
	web, dns := []string{"web-1", "web-2", "web-3"}, []string{"dns-1", "dns-2"}
	checkout, cart := []string{"checkout-1", "checkout-2"}, []string{"cart-1", "cart-2"}
	return t.showGroups(ctx, []group{
		{"shop/web", `
All pods of shop/web answer at all its addresses. For a connection from a pod to a ClusterIP, they
see the address of that pod. For connections from outside, or to a NodePort or an external IP, they
see the node that received the connection. Therefore the replies return through that node.`, []call{
			{"client", clusterIP, "tcp", all("node1", web...)},
			{"client", node1Port, "tcp", all("node1", web...)},
			{"client", node2Port, "tcp", all("node2", web...)},
			{"client", externalIP, "tcp", all("node1", web...)},
			{"toolbox", clusterIP, "tcp", all("toolbox", web...)},
			{"toolbox", node1Port, "tcp", all("node1", web...)},
			{"toolbox", node2Port, "tcp", all("node2", web...)},
			{"toolbox", externalIP, "tcp", all("node2", web...)},
			{"node1", clusterIP, "tcp", all("node1", web...)},
			{"node1", node1Port, "tcp", all("node1", web...)},
			{"node1", node2Port, "tcp", all("node2", web...)},
			{"node1", externalIP, "tcp", all("node1", web...)},
		}},
		{"kube-system/dns", "kube-system/dns has the same port for UDP and TCP.", []call{
			{"client", clusterIP, "udp", all("node1", dns...)},
			{"client", node2Port, "udp", all("node2", dns...)},
			{"client", externalIP, "udp", all("node1", dns...)},
			{"toolbox", clusterIP, "udp", all("toolbox", dns...)},
			{"node2", clusterIP, "udp", all("node2", dns...)},
			{"client", externalIP, "tcp", all("node1", dns...)},
			{"toolbox", clusterIP, "tcp", all("toolbox", dns...)},
		}},
		{"shop/checkout", `
shop/checkout has externalTrafficPolicy: Local. A node sends connections from outside only to its
own pods, and they see the address of the client. Connections from pods reach all pods.`, []call{
			{"client", loadBalancerIP, "tcp", all("client", "checkout-1")},
			{"client", node1Port, "tcp", all("client", "checkout-1")},
			{"client", node2Port, "tcp", all("client", "checkout-2")},
			{"toolbox", clusterIP, "tcp", all("toolbox", checkout...)},
			{"toolbox", node2Port, "tcp", all("toolbox", checkout...)},
		}},
		{"shop/cart", `
shop/cart has sessionAffinity: ClientIP. The same pod answers all connections from one address.`, []call{
			{"client", clusterIP, "tcp", oneOf("node1", cart...)},
			{"toolbox", clusterIP, "tcp", oneOf("toolbox", cart...)},
			{"node1", clusterIP, "tcp", oneOf("node1", cart...)},
		}},
	})
}

// showRefusals connects to addresses where no pod may answer.
func (t *tour) showRefusals(ctx context.Context) (err error) {
	for _, addr := range strangerAddrs() {
		single := netip.PrefixFrom(addr, addr.BitLen())
		if err := t.cluster.lab.Client.AddAddr(single); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, t.cluster.lab.Client.RemoveAddr(single)) }()
	}
	t.scene("Who does not answer", "kube-proxy refuses connections that have no endpoint, and drops those that are not allowed.")
	return t.showGroups(ctx, []group{
		{"shop/payments", `
shop/payments has no endpoints. Clients are refused at once: TCP by a reset, UDP by an ICMP port
unreachable.`, []call{
			{"client", clusterIP, "tcp", refused()},
			{"client", node2Port, "tcp", refused()},
			{"node1", clusterIP, "tcp", refused()},
			{"toolbox", clusterIP, "udp", refused()},
			{"client", node1Port, "udp", refused()},
		}},
		{"shop/web", `
shop/web has no port 81: connections are refused. No Service has the ClusterIP 10.96.0.99, which is
in the ServiceCIDR: packets are dropped, and connections time out.`, []call{
			{"toolbox", unusedPort, "tcp", refused()},
			{"client", unusedPort, "tcp", refused()},
			{"toolbox", unusedIP, "tcp", dropped()},
		}},
		{"shop/checkout", `
shop/checkout has loadBalancerSourceRanges 172.30.0.0/25 and fd00:30::/112. Packets from other
addresses are dropped. The stranger is a second address of the client, 172.30.0.200.`, []call{
			{"toolbox", loadBalancerIP, "tcp", dropped()},
			{stranger, loadBalancerIP, "tcp", dropped()},
		}},
	})
}

func (t *tour) showGroups(ctx context.Context, groups []group) error {
	for _, g := range groups {
		tallies, err := t.callAll(ctx, g)
		if err != nil {
			return err
		}
		addrs, err := t.cluster.addresses(g.service, g.calls[0].to, g.calls[0].protocol)
		if err != nil {
			return err
		}
		t.text(g.text)
		t.commands(t.connectCommand(g.calls[0].from, g.calls[0].protocol, addrs[0]))
		rows := [][]string{{"RESULT", "FROM", "TO", "OVER", "IPv4", "IPv6", "PODS SEE"}}
		for i, c := range g.calls {
			result := t.verdict(c.check(g.service, tallies[i]))
			ipv4, ipv6 := tallies[i][0], tallies[i][1]
			rows = append(rows, []string{result, c.from, string(c.to), c.protocol, ipv4.answers.String(), ipv6.answers.String(), ipv4.seenAs()})
		}
		t.table(rows)
	}
	return nil
}

// connectCommand returns a command that makes a connection.
func (t *tour) connectCommand(from, protocol string, to netip.AddrPort) string {
	script := fmt.Sprintf("head -1 </dev/tcp/%s/%d", to.Addr(), to.Port())
	if protocol == "udp" {
		script = fmt.Sprintf("exec 3<>/dev/udp/%s/%d; echo >&3; head -1 <&3", to.Addr(), to.Port())
	}
	return t.cluster.commandLine(from, "bash -c '"+script+"'")
}

// callAll makes the calls of a group, several at a time. It returns a tally for
// each family of each call.
func (t *tour) callAll(ctx context.Context, g group) ([][2]tally, error) {
	tallies := make([][2]tally, len(g.calls))
	var all errgroup.Group
	all.SetLimit(12)
	for i, c := range g.calls {
		addrs, err := t.cluster.addresses(g.service, c.to, c.protocol)
		if err != nil {
			return nil, err
		}
		for family, addr := range addrs {
			all.Go(func() error {
				tallies[i][family] = t.call(ctx, c, family, addr)
				return ctx.Err()
			})
		}
	}
	return tallies, all.Wait()
}

// call makes the connections of a call in one family. With three pods, 60
// connections miss one by chance once in 10^10 times. Those that time out are
// fewer and shorter, and wrong results end a call early.
func (t *tour) call(ctx context.Context, c call, family int, to netip.AddrPort) tally {
	const maxWrong = 3
	from, left, options := c.from, 60, lab.ProbeOptions{}
	if from == stranger {
		from, options.Local = "client", netip.AddrPortFrom(strangerAddrs()[family], 0)
	}
	if slices.Equal(c.want.answers, dropped().answers) {
		left, options.Timeout = 3, 400*time.Millisecond
	}
	result := tally{answers: counts{}, seen: counts{}}
	for wrong := 0; left > 0 && wrong < maxWrong && ctx.Err() == nil; left-- {
		t.connections.Add(1)
		probe := lab.Probe(ctx, t.cluster.hosts[from], c.protocol, to, options)
		answer := answerOf(probe)
		result.answers[answer]++
		if probe.Outcome == lab.Answered {
			result.seen[t.cluster.nameOf(probe.Answer.Source.Addr())]++
		}
		if !slices.Contains(c.want.answers, answer) {
			wrong++
		}
	}
	return result
}

// answerOf returns the pod that answered, or the outcome without an answer.
func answerOf(r lab.Result) string {
	if r.Outcome == lab.Answered {
		return r.Answer.Server
	}
	return r.Outcome.String()
}

// tally is the result of a call in one family.
type tally struct {
	answers counts // by pod or outcome
	seen    counts // by host whose address the pods saw
}

func (t tally) seenAs() string { return strings.Join(t.seen.keys(), ", ") }

// counts are numbers of connections.
type counts map[string]int

func (c counts) keys() []string { return slices.Sorted(maps.Keys(c)) }

// String returns the counts: "refused 1, web-1 3, web-2 5".
func (c counts) String() string {
	var parts []string
	for _, key := range c.keys() {
		parts = append(parts, fmt.Sprintf("%s %d", key, c[key]))
	}
	return strings.Join(parts, ", ")
}

// check returns an error if the result in a family is not as wanted.
func (c call) check(service string, tallies [2]tally) error {
	for i, family := range []string{"IPv4", "IPv6"} {
		if err := c.want.check(tallies[i]); err != nil {
			return fmt.Errorf("%s to %s, %s, over %s and %s: %w", c.from, service, c.to, family, c.protocol, err)
		}
	}
	return nil
}

func (w want) check(got tally) error {
	names, expected := got.answers.keys(), strings.Join(w.answers, ", ")
	met := slices.Equal(names, w.answers)
	if w.one {
		met = len(names) == 1 && slices.Contains(w.answers, names[0])
		expected = "one of " + expected
	}
	switch {
	case !met:
		return fmt.Errorf("got %s, want %s", got.answers, expected)
	case got.seenAs() != w.seen:
		return fmt.Errorf("the pods saw %s, want %s", got.seenAs(), w.seen)
	}
	return nil
}
