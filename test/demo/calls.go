package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nftproxy/nftproxy/test/lab"
)

// call is a check: a host connects many times to an address of a Service, over
// IPv4 and over IPv6.
type call struct {
	from, to, protocol string   // host, destination, tcp or udp
	want               []string // pods that answer, or an outcome without an answer
	oneOf              bool     // only one of the pods answers, instead of all
	seen               string   // host whose address the pods see
}

// parseCall parses a row of @calls: from, to, protocol, answers, seen.
func parseCall(row []string) call {
	c := call{from: row[0], to: row[1], protocol: row[2]}
	pods, oneOf := strings.CutPrefix(row[3], "one of ")
	c.want, c.oneOf = strings.Split(pods, ","), oneOf
	if len(row) > 4 {
		c.seen = row[4]
	}
	return c
}

// makeCalls makes the calls to a Service, several at a time.
func (t *tour) makeCalls(ctx context.Context, service string, rows [][]string) error {
	tallies := make([][2]tally, len(rows))
	var running errgroup.Group
	running.SetLimit(12)
	for i, row := range rows {
		c := parseCall(row)
		for family, to := range t.cluster.addresses(service, c.to, c.protocol) {
			running.Go(func() error {
				tallies[i][family] = t.call(ctx, c, to)
				return nil
			})
		}
	}
	running.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	table := [][]any{{"RESULT", "FROM", "TO", "OVER", "IPv4", "IPv6", "PODS SEE"}}
	for i, row := range rows {
		c, ipv4, ipv6 := parseCall(row), tallies[i][0], tallies[i][1]
		result := t.verdict(c.check(service, tallies[i]))
		table = append(table, []any{result, c.from, c.to, c.protocol, ipv4.answers, ipv6.answers, ipv4.seen.names()})
	}
	t.table(table)
	return nil
}

// call makes the connections of a call in one family. With three pods, 60
// connections miss one by chance once in 10^10 times. If they should time out,
// they are fewer and shorter. Three wrong results end the call.
func (t *tour) call(ctx context.Context, c call, to netip.AddrPort) tally {
	left, options := 60, lab.ProbeOptions{}
	if c.want[0] == lab.TimedOut.String() {
		left, options.Timeout = 3, 400*time.Millisecond
	}
	result := tally{counts{}, counts{}}
	for wrong := 0; left > 0 && wrong < 3 && ctx.Err() == nil; left-- {
		t.connections.Add(1)
		probe := lab.Probe(ctx, t.cluster.hosts[c.from], c.protocol, to, options)
		answer := answerOf(probe)
		result.answers[answer]++
		if probe.Outcome == lab.Answered {
			result.seen[t.cluster.nameOf(probe.Answer.Source.Addr())]++
		}
		if !slices.Contains(c.want, answer) {
			wrong++
		}
	}
	return result
}

// check returns an error if the result in a family is not as wanted.
func (c call) check(service string, both [2]tally) error {
	for i, family := range []string{"IPv4", "IPv6"} {
		got, want := both[i], strings.Join(c.want, ", ")
		met := got.answers.names() == want
		if c.oneOf {
			met, want = slices.Contains(c.want, got.answers.names()), "one of "+want
		}
		where := fmt.Sprintf("%s to %s, %s, %s over %s", c.from, service, c.to, c.protocol, family)
		switch {
		case !met:
			return fmt.Errorf("%s: got %s, want %s", where, got.answers, want)
		case got.seen.names() != c.seen:
			return fmt.Errorf("%s: pods see %s, want %s", where, got.seen.names(), c.seen)
		}
	}
	return nil
}

// answerOf returns the pod that answered, or the outcome without an answer.
func answerOf(r lab.Result) string {
	if r.Outcome == lab.Answered {
		return r.Answer.Server
	}
	return r.Outcome.String()
}

// tally is the result of a call in one family: the number of connections by
// answer, and by host whose address the pods saw.
type tally struct{ answers, seen counts }

// counts are numbers of connections by name.
type counts map[string]int

// names returns the names: "web-1, web-2".
func (c counts) names() string { return strings.Join(slices.Sorted(maps.Keys(c)), ", ") }

// String returns the names with their numbers: "refused 1, web-1 3, web-2 5".
func (c counts) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, c[name]))
	}
	return strings.Join(parts, ", ")
}

// openFlows opens a flow over IPv4 and one over IPv6 from the toolbox to a
// ClusterIP, both to the same pod: "kube-system/dns udp dns-2". A flow is a TCP
// connection or a UDP socket.
func (t *tour) openFlows(ctx context.Context, argument string, _ [][]string) error {
	fields := strings.Fields(argument)
	service, protocol, pod := fields[0], fields[1], fields[2]
	t.flows = nil
	for _, to := range t.cluster.addresses(service, "ClusterIP", protocol) {
		flow, result := lab.Open(ctx, t.cluster.hosts["toolbox"], protocol, to, lab.ProbeOptions{})
		for tries := 0; flow != nil && result.Answer.Server != pod && tries < 60; tries++ {
			flow.Close()
			flow, result = lab.Open(ctx, t.cluster.hosts["toolbox"], protocol, to, lab.ProbeOptions{})
		}
		if flow == nil {
			return fmt.Errorf("open a flow to %s: %v", to, result)
		}
		t.flows = append(t.flows, flow) // the cluster's end closes it
	}
	return t.askFlows(ctx, pod, nil)
}

// askFlows waits until a pod answers on each flow, and then checks that it
// answers 20 times. A packet that arrives while a flow changes may be lost.
func (t *tour) askFlows(ctx context.Context, pod string, _ [][]string) error {
	table := [][]any{{"RESULT", "TO", "ANSWERS ON ONE SOCKET"}}
	for _, flow := range t.flows {
		ask := func() string {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return answerOf(flow.Ask(short))
		}
		for start := time.Now(); ask() != pod && time.Since(start) < effectTimeout && ctx.Err() == nil; {
		}
		got := counts{}
		for range 20 {
			got[ask()]++
		}
		var err error
		if got.names() != pod {
			err = fmt.Errorf("%s: got %s, want %s", flow.RemoteAddr(), got, pod)
		}
		table = append(table, []any{t.verdict(err), flow.RemoteAddr(), got})
	}
	t.table(table)
	return nil
}
