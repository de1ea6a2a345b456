package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
)

// event is a change while four clients connect to shop/web again and again.
// Clients 0 and 1 connect through node1, clients 2 and 3 through node2.
type event struct {
	name  string
	do    func() error
	want  [2][]string // answers through each node after the event
	lossy bool        // connections through node1 may be lost until the event is in force

	begin, done time.Time
	inForce     [clients]time.Time
}

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

// showEvents starts the clients, makes the events happen one after another, and
// shows the answers of each node for each event. The first event sets the
// initial answers.
func (t *tour) showEvents(ctx context.Context, period, timeout time.Duration, events []event) error {
	s := &stream{}
	connecting, stop := context.WithCancel(ctx) // attempts end with ctx
	defer s.running.Wait()
	defer stop()
	for client, destination := range []destination{externalIP, externalIP, clusterIP, clusterIP} {
		addrs, err := t.cluster.addresses("shop/web", destination, "tcp")
		if err != nil {
			return err
		}
		from := t.cluster.hosts[[]string{"client", "toolbox"}[client/2]]
		s.running.Go(func() {
			for range time.Tick(period) {
				if connecting.Err() != nil {
					return
				}
				t.connections.Add(1)
				s.running.Go(func() { s.connect(ctx, client, from, addrs[client%2], timeout) })
			}
		})
	}
	var failure error
	for i := range events {
		e := &events[i]
		if failure = s.await(ctx, e, events[max(0, i-1)]); failure != nil {
			events = events[:i+1]
			break
		}
	}
	stop()
	s.running.Wait()
	t.showResults(events, s.attempts)
	return failure
}

func (s *stream) connect(ctx context.Context, client int, from *lab.Namespace, to netip.AddrPort, timeout time.Duration) {
	a := attempt{client: client, start: time.Now()}
	a.answer = answerOf(lab.Probe(ctx, from, "tcp", to, lab.ProbeOptions{Timeout: timeout}))
	a.end = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts = append(s.attempts, a)
}

// await makes the event happen and waits until it is in force for all clients.
func (s *stream) await(ctx context.Context, e *event, previous event) error {
	e.begin = time.Now()
	if e.do != nil {
		if err := e.do(); err != nil {
			return err
		}
	}
	e.done = time.Now()
	for deadline := e.done.Add(effectTimeout); ; time.Sleep(10 * time.Millisecond) {
		s.mu.Lock()
		attempts := s.attempts
		s.mu.Unlock()
		complete := true
		for client := range clients {
			seen := false
			e.inForce[client], seen = e.seenBy(client, previous, attempts)
			complete = complete && seen
		}
		switch {
		case complete:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Now().After(deadline):
			return fmt.Errorf("%s: not in force after %v", e.name, effectTimeout)
		}
	}
}

// settled is the number of attempts of a client after an event is in force.
// With one of three pods removed, 80 attempts miss it by chance once in 10^14
// times.
const settled = 80

// before returns the answers that are possible until the event is in force.
func (e *event) before(client int, previous event) []string {
	if e.lossy && client < clients/2 {
		return nil
	}
	return previous.want[client/2]
}

// seenBy returns the end of the client's first attempt with a new answer. If
// the event only removes answers, it returns the end of the last attempt with a
// removed answer. It reports whether the client made enough attempts since.
func (e *event) seenBy(client int, previous event, attempts []attempt) (time.Time, bool) {
	before, after := e.before(client, previous), e.want[client/2]
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

// showResults shows a row for each event and node. An attempt belongs to the
// last event that began before the attempt ended.
func (t *tour) showResults(events []event, attempts []attempt) {
	rows := [][]string{{"RESULT", "EVENT", "THROUGH", "CONNECTIONS", "REFUSED", "LOST", "IN FORCE AFTER", "THEN"}}
	for i, e := range events {
		next := time.Now()
		if i+1 < len(events) {
			next = events[i+1].begin
		}
		for node := range 2 {
			own := slices.DeleteFunc(slices.Clone(attempts), func(a attempt) bool {
				return a.client/2 != node || a.end.Before(e.begin) || !a.end.Before(next)
			})
			all, then, err := e.check(node, events[max(0, i-1)], own)
			lost := all[lab.TimedOut.String()] + all[lab.Unreachable.String()] + all[lab.Failed.String()]
			delay := slices.MaxFunc(e.inForce[2*node:2*node+2], time.Time.Compare).Sub(e.done).Round(time.Millisecond)
			rows = append(rows, []string{
				t.verdict(err), e.name, fmt.Sprintf("node%d", node+1), fmt.Sprint(len(own)), fmt.Sprint(all[lab.Refused.String()]),
				fmt.Sprint(lost), delay.String(), strings.Join(then.keys(), ", "),
			})
		}
	}
	t.table(rows)
}

// check counts the answers of all attempts, and of those that began after the
// event was in force. It returns an error if the first differ from the possible
// answers or the others from the wanted ones.
func (e *event) check(node int, previous event, attempts []attempt) (all, then counts, err error) {
	before := e.before(2*node, previous)
	all, then = counts{}, counts{}
	possible := true
	for _, a := range attempts {
		all[a.answer]++
		if a.start.After(e.inForce[a.client]) {
			then[a.answer]++
		} else if before != nil && !slices.Contains(slices.Concat(before, e.want[node]), a.answer) {
			possible = false
		}
	}
	if !possible || !slices.Equal(then.keys(), e.want[node]) {
		err = fmt.Errorf("%s, through node%d: got %s, want %s", e.name, node+1, all, strings.Join(e.want[node], ", "))
	}
	return all, then, err
}
