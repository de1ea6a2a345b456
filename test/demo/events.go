package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/listing"
)

// event is a change while clients connect to shop/web.
type event struct {
	name          string
	do            func() error
	before, after [2][]string // possible answers through each node; before: nil for any

	begin, done time.Time
	inForce     [clients]time.Time // first time when the client saw the change
}

// clients connect to shop/web. Clients 0 and 1 connect through node1, clients 2
// and 3 through node2. Of each two, one uses IPv4 and one IPv6.
const clients = 4

// attempt is one connection of a client.
type attempt struct {
	client     int
	start, end time.Time
	answer     string // see answerOf
}

// stream collects the attempts of the clients.
type stream struct {
	running  sync.WaitGroup
	mu       sync.Mutex
	attempts []attempt // ordered by end
}

// makeEvents starts the clients, makes the events happen, and shows the answers
// through each node. Its argument is the interval between the attempts of a
// client and their timeout. A row is the event's name, the change, and the
// answers through node1 and node2 after the change.
func (t *tour) makeEvents(ctx context.Context, argument string, rows [][]string) error {
	first, second, _ := strings.Cut(argument, " ")
	interval, errInterval := time.ParseDuration(first)
	timeout, errTimeout := time.ParseDuration(second)
	if err := errors.Join(errInterval, errTimeout); err != nil {
		return err
	}
	s := &stream{}
	stop := t.startClients(ctx, s, interval, timeout)
	defer stop()
	var (
		events  []*event
		failure error
	)
	for i := 0; i < len(rows) && failure == nil; i++ {
		row := rows[i]
		e := &event{name: row[0], do: func() error { return t.change(ctx, row[1]) }}
		e.after = [2][]string{strings.Split(row[2], ","), strings.Split(row[3], ",")}
		e.before = e.after
		if i > 0 {
			e.before = events[i-1].after
		}
		if strings.HasPrefix(row[1], "flush") {
			e.before[0] = nil
		}
		events = append(events, e)
		failure = s.await(ctx, e)
	}
	stop()
	t.showEvents(events, s.attempts)
	return failure
}

// change changes the endpoints of shop/web, or node1.
func (t *tour) change(ctx context.Context, change string) (err error) {
	verb, object, _ := strings.Cut(change, " ")
	switch verb {
	case "endpoints":
		err = t.cluster.setEndpoints("shop/web", strings.Split(object, ",")...)
	case "kill":
		t.cluster.proxies["node1"].End(syscall.SIGKILL)
	case "start":
		err = t.cluster.startProxy(ctx, t.cluster.lab.Node1)
	case "flush":
		_, err = listing.Run(ctx, t.cluster.lab.Node1.Namespace, "flush", "ruleset")
	}
	return err
}

// startClients starts the clients. Each makes an attempt every interval,
// without waiting for earlier ones. The function that it returns stops them.
func (t *tour) startClients(ctx context.Context, s *stream, interval, timeout time.Duration) (stop func()) {
	connecting, cancel := context.WithCancel(ctx) // attempts end with ctx
	for client := range clients {
		from, to := "client", "external IP"
		if client/2 == 1 {
			from, to = "toolbox", "ClusterIP"
		}
		addr := t.cluster.addresses("shop/web", to, "tcp")[client%2]
		connect := func() {
			a := attempt{client: client, start: time.Now()}
			a.answer = answerOf(lab.Probe(ctx, t.cluster.hosts[from], "tcp", addr, lab.ProbeOptions{Timeout: timeout}))
			a.end = time.Now()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.attempts = append(s.attempts, a)
		}
		s.running.Go(func() {
			for range time.Tick(interval) {
				if connecting.Err() != nil {
					return
				}
				t.connections.Add(1)
				s.running.Go(connect)
			}
		})
	}
	return func() {
		cancel()
		s.running.Wait()
	}
}

// await makes an event happen and waits until it is in force for all clients.
func (s *stream) await(ctx context.Context, e *event) error {
	e.begin = time.Now()
	if err := e.do(); err != nil {
		return err
	}
	e.done = time.Now()
	for time.Since(e.done) < effectTimeout && ctx.Err() == nil {
		s.mu.Lock()
		attempts := s.attempts
		s.mu.Unlock()
		complete := true
		for client := range clients {
			seen := false
			e.inForce[client], seen = e.seenBy(client, attempts)
			complete = complete && seen
		}
		if complete {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("%s: clients do not see the change within %v", e.name, effectTimeout)
}

// settled is the number of attempts of a client after an event is in force.
// With one of three pods removed, 80 attempts miss it by chance once in 10^14
// times.
const settled = 80

// seenBy returns the end of the client's first attempt with a new answer. If
// the event only removes answers, it returns the end of the last attempt with a
// removed answer. It reports whether the client made enough attempts since.
func (e *event) seenBy(client int, attempts []attempt) (time.Time, bool) {
	before, after := e.before[client/2], e.after[client/2]
	isNew := func(answer string) bool { return !slices.Contains(before, answer) }
	adds := slices.ContainsFunc(after, isNew)
	seen, since, count := !adds, e.done, 0
	for _, a := range attempts {
		switch wanted := slices.Contains(after, a.answer); {
		case a.client != client || a.start.Before(e.done):
		case seen && wanted:
			count++
		case wanted && isNew(a.answer):
			seen, since = true, a.end
		case !wanted && !adds:
			since, count = a.end, 0
		}
	}
	return since, seen && count >= settled
}

// showEvents shows a row for each event and node. An attempt belongs to the
// last event that began before the attempt ended.
func (t *tour) showEvents(events []*event, attempts []attempt) {
	table := [][]any{{"RESULT", "EVENT", "THROUGH", "CONNECTIONS", "REFUSED", "LOST", "DELAY", "THEN"}}
	for i, e := range events {
		for node := range 2 {
			own := slices.DeleteFunc(slices.Clone(attempts), func(a attempt) bool {
				later := i+1 < len(events) && !a.end.Before(events[i+1].begin)
				return a.client/2 != node || a.end.Before(e.begin) || later
			})
			result, then, err := e.check(node, own)
			lost := result[lab.TimedOut.String()] + result[lab.Unreachable.String()] + result[lab.Failed.String()]
			delay := slices.MaxFunc(e.inForce[2*node:2*node+2], time.Time.Compare).Sub(e.done).Milliseconds()
			table = append(table, []any{
				t.verdict(err), e.name, fmt.Sprintf("node%d", node+1), len(own), result[lab.Refused.String()], lost,
				fmt.Sprintf("%d ms", delay), then.names(),
			})
		}
	}
	t.table(table)
}

// check counts the answers of all attempts, and of those that began after the
// event was in force. It returns an error if an answer was not possible at the
// time, or if a wanted one is missing.
func (e *event) check(node int, attempts []attempt) (result, then counts, err error) {
	before, after := e.before[node], e.after[node]
	result, then = counts{}, counts{}
	possible := true
	for _, a := range attempts {
		result[a.answer]++
		if a.start.After(e.inForce[a.client]) {
			then[a.answer]++
		} else if before != nil && !slices.Contains(slices.Concat(before, after), a.answer) {
			possible = false
		}
	}
	if want := strings.Join(after, ", "); !possible || then.names() != want {
		err = fmt.Errorf("%s, through node%d: got %s, then %s, want %s", e.name, node+1, result, then, want)
	}
	return result, then, err
}
