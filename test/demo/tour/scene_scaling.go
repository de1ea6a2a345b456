package tour

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/nftproxy/nftproxy/test/demo/cluster"
	"github.com/nftproxy/nftproxy/test/demo/page"
	"github.com/nftproxy/nftproxy/test/lab"
)

// extraPods are those that shop/web gets when it is scaled up.
func extraPods() []cluster.Endpoint {
	dual := func(ipv4, ipv6 string) cluster.Dual {
		return cluster.Dual{IPv4: netip.MustParseAddr(ipv4), IPv6: netip.MustParseAddr(ipv6)}
	}
	return []cluster.Endpoint{
		{Pod: "web-4", Node: "node1", Dual: dual("10.244.1.13", "fd00:244:1::13")},
		{Pod: "web-5", Node: "node2", Dual: dual("10.244.2.12", "fd00:244:2::12")},
	}
}

// scaling is shop/web while clients keep connecting to it.
type scaling struct {
	*tour
	stream *stream
	steps  []step
}

// step is a stretch of time that begins with a change of the endpoints.
type step struct {
	name string
	change
	inForce []time.Time // by line; nil for the first step
}

// showScaling scales a Service while clients keep connecting to it.
func (t *tour) showScaling(ctx context.Context) error {
	web := t.services.web
	t.page.Scene("Scaling under load")
	t.page.Text("Four clients keep connecting to shop/web, 250 times a second each: the client outside, by an external IP "+
		"and so through node1, and the toolbox, by a ClusterIP and so through node2, both over IPv4 and IPv6. Meanwhile "+
		"pods come and go: %s is written anew, and kube-proxy takes it up on both nodes. "+
		"The time until that is in force counts from the writing until the last of the clients sees it; 75 ms of it are "+
		"kube-proxy's wait for more changes in the folder.", web.EndpointsFile())
	stream, err := t.startStream(ctx, t.webLines(), steady())
	if err != nil {
		return err
	}
	defer stream.end()
	open, err := t.openConnection(ctx)
	if err != nil {
		return err
	}
	defer open.Close()

	s := &scaling{tour: t, stream: stream}
	if err := s.play(ctx); err != nil {
		return err
	}
	stillOpen := open.Ask(ctx).Outcome == lab.Answered
	s.show(stream.end(), time.Now())
	t.claim(stillOpen, "A connection that was open all the while still works: what is established is left alone.")
	return nil
}

// webLines are the clients of scenes that change shop/web. The first two come through node1, the others through node2.
func (t *tour) webLines() []line {
	web := t.services.web
	to := func(addr netip.Addr) netip.AddrPort { return netip.AddrPortFrom(addr, web.port.Port) }
	return []line{
		{"client", to(web.ExternalIPs.IPv4)}, {"client", to(web.ExternalIPs.IPv6)},
		{"toolbox", to(web.ClusterIPs.IPv4)}, {"toolbox", to(web.ClusterIPs.IPv6)},
	}
}

// openConnection connects to shop/web from the toolbox, and stays connected.
func (t *tour) openConnection(ctx context.Context) (*lab.Conn, error) {
	host, err := t.stage.Host("toolbox")
	if err != nil {
		return nil, err
	}
	web := t.services.web
	to := netip.AddrPortFrom(web.ClusterIPs.IPv4, web.port.Port)
	conn, result := lab.Open(ctx, host, "tcp", to, lab.ProbeOptions{})
	if conn == nil {
		return nil, fmt.Errorf("connect to %s: %v", to, result)
	}
	t.connections.Add(1)
	return conn, nil
}

// play scales up, down, to zero and back.
func (s *scaling) play(ctx context.Context) error {
	web := s.services.web
	all := slices.Concat(web.Endpoints, extraPods())
	s.steps = []step{{name: "at first", change: change{at: time.Now(), before: web.Pods(), after: web.Pods()}}}
	if err := s.stream.awaitMore(ctx); err != nil {
		return err
	}
	for _, e := range extraPods() {
		if err := s.stage.AddPod(e, web.Ports); err != nil {
			return err
		}
	}
	if err := s.scale(ctx, "scaled up to 5", all); err != nil {
		return err
	}
	if err := s.scale(ctx, "scaled down to 2", all[:2]); err != nil {
		return err
	}
	for _, e := range extraPods() {
		if err := s.stage.RemovePod(e.Pod); err != nil {
			return err
		}
	}
	if err := s.scale(ctx, "scaled down to 0", nil); err != nil {
		return err
	}
	return s.scale(ctx, "scaled up to 3", web.Endpoints)
}

// scale changes the endpoints, and waits until that is in force and clients had some time with it.
func (s *scaling) scale(ctx context.Context, name string, to []cluster.Endpoint) error {
	at, err := s.stage.WriteEndpoints(s.services.web.Service, to)
	if err != nil {
		return err
	}
	next := step{name: name, change: change{at: at, before: s.steps[len(s.steps)-1].after, after: cluster.Names(to)}}
	err = s.stream.await(ctx, "shop/web "+name, func(all []attempt) (complete bool) {
		next.inForce, complete = next.change.inForce(s.stream.lines, all)
		return complete
	})
	if err != nil {
		return err
	}
	s.steps = append(s.steps, next)
	return s.stream.awaitMore(ctx)
}

// show shows what became of the attempts.
func (s *scaling) show(attempts []attempt, end time.Time) {
	table := page.Table{
		Columns: []string{"SHOP/WEB", "PODS", "CONNECTIONS", "ANSWERED", "REFUSED", "LOST", "IN FORCE\nAFTER", "THEN ANSWERED BY"},
		Right:   []int{1, 2, 3, 4, 5, 6},
	}
	excused := outage(s.steps)
	served := accountOf(attempts, func(a attempt) bool { return !excused.excuses(a) })
	without := accountOf(attempts, excused.excuses)
	for i, step := range s.steps {
		until := end
		if i+1 < len(s.steps) {
			until = s.steps[i+1].at
		}
		sum := accountOf(attempts, between(step.at, until))
		settled := accountOf(attempts, func(a attempt) bool { return between(step.at, until)(a) && step.settled(a) })
		ok := sum.lost == 0 && slices.Equal(settled.servers, slices.Sorted(slices.Values(step.after)))
		table.Add(s.check(ok, "shop/web %s: %d lost, then answered by %v, want %v", step.name, sum.lost, settled.servers, step.after),
			step.name, strconv.Itoa(len(step.after)), strconv.Itoa(sum.attempts), strconv.Itoa(sum.answered),
			strconv.Itoa(sum.refused), strconv.Itoa(sum.lost), step.delayText(), shortNames(settled.servers))
	}
	s.page.Table(table)
	s.claim(served.answered == served.attempts && served.attempts > 0,
		"No connection failed while there were endpoints: of %d made in that time %d were answered.", served.attempts, served.answered)
	s.claim(without.lost == 0, "Without endpoints none had to wait: all %d of that time ended at once, %d of them refused.",
		without.attempts, without.refused)
}

// settled tells whether an attempt began when the step was in force.
func (s step) settled(a attempt) bool { return s.inForce == nil || a.start.After(s.inForce[a.line]) }

func (s step) delayText() string {
	if s.inForce == nil {
		return ""
	}
	return fmt.Sprintf("%d ms", s.delay(s.inForce).Milliseconds())
}

// outage is the time in which connections may be refused: from the step to zero until the next one is in force.
func outage(steps []step) gap {
	for i, s := range steps {
		if len(s.after) == 0 && i+1 < len(steps) {
			return gap{from: s.at, until: steps[i+1].inForce}
		}
	}
	return gap{}
}

// shortNames joins the names of pods: "web-1 to web-5" where they are in a row.
func shortNames(names []string) string {
	switch len(names) {
	case 0:
		return "nobody"
	case 1:
		return names[0]
	}
	return names[0] + " to " + names[len(names)-1]
}
