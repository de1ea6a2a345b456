package conntrack

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// removalOf returns a removal of a TCP endpoint.
func removalOf(endpoint string, frontends ...string) Removal {
	return Removal{
		Protocol: tcp, Endpoint: addrPort(endpoint), Done: func(int) {},
		Serves: func(f netip.AddrPort) bool { return slices.Contains(frontends, f.String()) },
	}
}

func (f trackedFlow) inState(state uint8) trackedFlow {
	f.state = state
	return f
}

func TestStaleOfRemoval(t *testing.T) {
	const client, vip, ep1, ep2 = "10.0.0.1:4000", "10.96.0.10:80", "10.244.0.5:8080", "10.244.0.6:8080"
	const client6, vip6, ep6 = "[fd00::1]:4000", "[fd96::10]:80", "[fd24::5]:8080"
	removals := []Removal{
		removalOf(ep1, vip, "0.0.0.0:30080"), removalOf(ep6, vip6, "[::]:30080"),
		removalOf(ep2, vip), removalOf(ep1, "10.96.0.12:80"), // of another service
	}
	removals[2].Protocol = unix.IPPROTO_SCTP
	for name, tc := range map[string]struct {
		flow trackedFlow
		want bool
	}{
		"connection":                 {newFlow(tcp, client, vip, ep1).inState(3), true},
		"SYN_SENT":                   {newFlow(tcp, client, vip, ep1).inState(1), true},
		"FIN_WAIT":                   {newFlow(tcp, client, vip, ep1).inState(4), true},
		"TIME_WAIT":                  {newFlow(tcp, client, vip, ep1).inState(7), false},
		"CLOSE":                      {newFlow(tcp, client, vip, ep1).inState(8), false},
		"IPv6":                       {newFlow(tcp, client6, vip6, ep6).inState(3), true},
		"NodePort":                   {newFlow(tcp, client, "192.0.2.1:30080", ep1).inState(3), true},
		"IPv6 NodePort":              {newFlow(tcp, client6, "[fd01::1]:30080", ep6).inState(3), true},
		"NodePort of another host":   {newFlow(tcp, client, "192.0.2.9:30080", ep1).inState(3), false},
		"hostPort":                   {newFlow(tcp, client, "192.0.2.1:8080", ep1).inState(3), false},
		"not translated":             {newFlow(tcp, client, ep1, ep1).inState(3), false},
		"another endpoint":           {newFlow(tcp, client, vip, ep2).inState(3), false},
		"another port":               {newFlow(tcp, client, vip, "10.244.0.5:8081").inState(3), false},
		"another frontend":           {newFlow(tcp, client, "10.96.0.11:80", ep1).inState(3), false},
		"another service":            {newFlow(tcp, client, "10.96.0.12:80", ep1).inState(3), true},
		"SCTP":                       {newFlow(unix.IPPROTO_SCTP, client, vip, ep2).inState(4), true},
		"SCTP, CLOSED":               {newFlow(unix.IPPROTO_SCTP, client, vip, ep2).inState(1), false},
		"SCTP, endpoint of TCP":      {newFlow(unix.IPPROTO_SCTP, client, vip, ep1).inState(4), false},
		"UDP, endpoint of TCP":       {newFlow(udp, client, vip, ep1), false},
		"in another zone":            {newFlow(tcp, client, vip, ep1).inState(3).inZone(7, zoneBoth), true},
		"from a pod to the pod":      {newFlow(tcp, "10.244.1.1:4000", ep1, ep1).inState(3), false},
		"source of the first packet": {newFlow(tcp, ep1, vip, ep2).inState(3), false},
	} {
		t.Run(name, func(t *testing.T) {
			f := onAllAddrs()
			f.Remove(removals...)
			todo := f.take()
			isLocal := local("192.0.2.1", "fd01::1")
			if got := f.stale(tc.flow, &todo, isLocal); got != tc.want {
				t.Errorf("%v: got %v, want %v", tc.flow, got, tc.want)
			}
		})
	}
}

// A pass for removals asks the kernel for the flows to few endpoints only.
func TestRemovalFilters(t *testing.T) {
	const few, many = 100, 500_000 // entries; the limits are one and seven dumps
	numbered := func(n int, each func(i int) string) (out []Removal) {
		for i := range n {
			out = append(out, removalOf(each(i)))
		}
		return out
	}
	sctp := removalOf("10.244.0.5:9")
	sctp.Protocol = unix.IPPROTO_SCTP
	for name, tc := range map[string]struct {
		removals []Removal
		entries  int
		want     []string
	}{
		"one": {
			numbered(1, func(int) string { return "10.244.0.5:80" }), few,
			[]string{"IPv4 protocol 6 translated flows with replies from 10.244.0.5 with replies from port 80"},
		},
		"of two services": {
			numbered(2, func(int) string { return "10.244.0.5:80" }), few,
			[]string{"IPv4 protocol 6 translated flows with replies from 10.244.0.5 with replies from port 80"},
		},
		"two of a port": {
			numbered(2, func(i int) string { return fmt.Sprintf("10.244.0.%d:80", i) }), many,
			[]string{
				"IPv4 protocol 6 translated flows with replies from 10.244.0.0 with replies from port 80",
				"IPv4 protocol 6 translated flows with replies from 10.244.0.1 with replies from port 80",
			},
		},
		"three of a port, one of another": {
			append(numbered(3, func(i int) string { return fmt.Sprintf("10.244.0.%d:80", i) }),
				removalOf("10.244.0.5:90")), many,
			[]string{
				"IPv4 protocol 6 translated flows with replies from port 80",
				"IPv4 protocol 6 translated flows with replies from 10.244.0.5 with replies from port 90",
			},
		},
		"one port": {
			numbered(8, func(i int) string { return fmt.Sprintf("10.244.0.%d:80", i) }), many,
			[]string{"IPv4 protocol 6 translated flows with replies from port 80"},
		},
		"one port, IPv6": {
			numbered(8, func(i int) string { return fmt.Sprintf("[fd24::%d]:80", i) }), few,
			[]string{"IPv6 protocol 6 translated flows with replies from port 80"},
		},
		"many ports": {
			append(numbered(8, func(i int) string { return fmt.Sprintf("10.244.0.5:%d", 80+i) }), sctp), many,
			[]string{"IPv4 protocol 6 translated flows", "IPv4 protocol 132 translated flows"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFrontends()
			f.Remove(tc.removals...)
			todo := f.take()
			var got []string
			for _, filter := range plan(&todo, tc.entries) {
				got = append(got, filter.String())
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q\nwant %q", got, tc.want)
			}
		})
	}
}

// The passes for a removal delete its connections, whichever dumps they make.
func TestCleanRemovals(t *testing.T) {
	for _, more := range []int{0, 20} {
		t.Run(fmt.Sprintf("%d more", more), func(t *testing.T) {
			ns := newNode(t)
			c := ns.open(t)
			gone := []trackedFlow{
				newFlow(tcp, "10.0.0.1:4000", "10.96.0.10:80", "10.244.0.5:8080"),
				newFlow(tcp, "10.0.0.2:4000", "192.0.2.1:30080", "10.244.0.5:8080"),
				newFlow(tcp, "[fd00::1]:4000", "[fd96::10]:80", "[fd24::5]:8080"),
			}
			kept := []trackedFlow{
				newFlow(tcp, "10.0.0.3:4000", "10.96.0.10:80", "10.244.0.6:8080"),
				newFlow(tcp, "10.0.0.4:4000", "10.244.0.5:8080", "10.244.0.5:8080"),
				newFlow(tcp, "[fd00::2]:4000", "[fd96::10]:80", "[fd24::6]:8080"),
				newFlow(udp, "10.0.0.1:4000", "10.96.0.10:80", "10.244.0.5:8080"),
			}
			ns.injector(t).add(t, append(kept, gone...)...)
			f := onAllAddrs()
			removals := []Removal{
				removalOf("10.244.0.5:8080", "10.96.0.10:80", "0.0.0.0:30080"),
				removalOf("[fd24::5]:8080", "[fd96::10]:80"),
			}
			for i := range more {
				removals = append(removals,
					removalOf(fmt.Sprintf("10.244.1.5:%d", 1000+i)), removalOf(fmt.Sprintf("[fd24::5]:%d", 1000+i)))
			}
			f.Remove(removals...)
			todo := f.take()
			for _, want := range []int{len(gone), 0} {
				if stats, err := c.clean(t.Context(), f, &todo); err != nil || stats.Deleted != want {
					t.Errorf("got %+v, %v, want %d deleted flows", stats, err, want)
				}
			}
			wantFlows(t, c, kept)
		})
	}
}

// Each removal is checked by two passes, and then reported once.
func TestCleanerRemoves(t *testing.T) {
	p := &passes{}
	run(t, p, func(c *Cleaner, results *[]Result) {
		done := 0
		r := removalOf("10.244.0.5:8080", "10.96.0.10:80")
		r.Done = func(int) { done++ }
		c.Remove(r)
		time.Sleep(time.Hour)
		settle()
		p.wantPasses(t, 2)
		if done != 1 {
			t.Errorf("got %d reports, want 1", done)
		}
	})
}

// While endpoints are removed all the time, passes are rare: the second pass
// for a removal is the first one for another.
func TestCleanerSharesPasses(t *testing.T) {
	for _, pass := range []time.Duration{10 * time.Millisecond, 200 * time.Millisecond} {
		t.Run(pass.String(), func(t *testing.T) {
			p := &passes{answer: func(int) (Stats, error) {
				time.Sleep(pass)
				return Stats{}, nil
			}}
			run(t, p, func(c *Cleaner, _ *[]Result) {
				c.pause = removalPause
				for i := range 600 { // a minute
					c.Remove(removalOf(fmt.Sprintf("10.244.0.5:%d", 1+i)))
					time.Sleep(100 * time.Millisecond)
				}
				synctest.Wait()
				if share := float64(len(p.checks)) * pass.Seconds() / 60; share > 0.027 { // with the first passes
					t.Errorf("%d passes use %.1f %% of a CPU, want 2 %%", len(p.checks), 100*share)
				}
				if len(p.checks) < 5 {
					t.Errorf("got %d passes in a minute, want one in 10 s", len(p.checks))
				}
			})
		})
	}
}

// Passes for the endpoints of a lost node follow one another, and their
// connections end at once.
func TestCleanerAfterNodeLoss(t *testing.T) {
	const endpoints, pass = 10, 10 * time.Millisecond
	p := &passes{answer: func(int) (Stats, error) {
		time.Sleep(pass)
		return Stats{}, nil
	}}
	run(t, p, func(c *Cleaner, _ *[]Result) {
		c.pause = removalPause
		for i := range endpoints {
			c.Remove(removalOf(fmt.Sprintf("10.244.0.5:%d", 1+i)))
			time.Sleep(2 * pass)
			synctest.Wait()
			if len(p.checks) <= i {
				t.Fatalf("removal %d: no pass within %v", i, 2*pass)
			}
		}
	})
}
