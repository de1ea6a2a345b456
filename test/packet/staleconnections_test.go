package packet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

const resetStale = "--reset-stale-connections"

// connections are open TCP connections of clients that send rarely.
type connections struct {
	checks checks
	conns  []*lab.Conn
}

// connect opens a connection on each path, a line "FROM... -> TO...".
func (c *cluster) connect(t *testing.T, s *service, paths string) *connections {
	t.Helper()
	all := &connections{checks: c.checks(s, paths+" => refused")}
	for _, k := range all.checks {
		conn, result := lab.Open(t.Context(), k.origin.Namespace, k.network, k.to, lab.ProbeOptions{})
		if result.Outcome != lab.Answered {
			t.Fatalf("%s: got %v, want an answer", k.describe, result)
		}
		t.Cleanup(func() { conn.Close() })
		all.conns = append(all.conns, conn)
	}
	return all
}

// ask sends on all connections, and calls each with the results.
func (all *connections) ask(t *testing.T, timeout time.Duration, each func(name string, r lab.Result)) {
	t.Helper()
	for i, conn := range all.conns {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		each(all.checks[i].describe, conn.Ask(ctx))
		cancel()
	}
}

func (all *connections) mustWork(t *testing.T, when string) {
	t.Helper()
	all.ask(t, answerTimeout, func(name string, r lab.Result) {
		if r.Outcome != lab.Answered {
			t.Errorf("%s: %s: got %v, want an answer", when, name, r)
		}
	})
}

func (all *connections) mustReset(t *testing.T, when string) {
	t.Helper()
	all.ask(t, answerTimeout, func(name string, r lab.Result) {
		if !errors.Is(r.Err, syscall.ECONNRESET) {
			t.Errorf("%s: %s: got %v, want a reset", when, name, r)
		}
	})
}

func (all *connections) mustHang(t *testing.T, when string) {
	t.Helper()
	all.ask(t, silence, func(name string, r lab.Result) {
		if r.Outcome != lab.TimedOut {
			t.Errorf("%s: %s: got %v, want no answer", when, name, r)
		}
	})
}

// cutOff drops all packets to and from a pod, as if its node were lost.
func (c *cluster) cutOff(t *testing.T, pods ...string) {
	t.Helper()
	for _, pod := range pods {
		labtest.Run(t, c.pods[pod].Namespace, "nft", `table inet cut {
			chain in { type filter hook input priority -400; policy drop; }
			chain out { type filter hook output priority -400; policy drop; }
		}`)
	}
}

// resets returns the number of connections that the proxy of node1 has reset.
func (c *cluster) resets(t *testing.T) (n int) {
	t.Helper()
	for _, f := range bothFamilies() {
		n += c.metric(t, fmt.Sprintf(`nftproxy_stale_connections_reset_total{ip_family="%s"}`, f))
	}
	return n
}

func (c *cluster) awaitResets(t *testing.T, want int) {
	t.Helper()
	eventually(t, "resets", func() error {
		if n := c.resets(t); n < want {
			return fmt.Errorf("got %d, want %d", n, want)
		}
		return nil
	})
}

const (
	clusterPolicy = "type: NodePort\nexternalIPs: {{.ExternalIPs}}"
	localPolicy   = "type: NodePort\nexternalTrafficPolicy: Local"
	internalLocal = "internalTrafficPolicy: Local"
	fromAll       = "client pod1 node1 -> clusterIP externalIP nodePort@node1"
)

// TestStaleConnections shows that connections to endpoints that are gone are
// reset, with both traffic policies, with and without other endpoints, and that
// all other connections stay.
func TestStaleConnections(t *testing.T) {
	t.Parallel()
	c := newCluster(t, resetStale)
	web := service{name: "web", spec: clusterPolicy, protocols: "TCP", endpoints: "b1"}
	none := service{name: "none", spec: clusterPolicy, protocols: "TCP", endpoints: "b1"}
	local := service{name: "local", spec: localPolicy, protocols: "TCP", endpoints: "a1"}
	internal := service{name: "internal", spec: internalLocal, protocols: "TCP", endpoints: "a1"}
	stays := service{name: "stays", spec: clusterPolicy, protocols: "TCP", endpoints: "a2"}
	associated := service{name: "associated", spec: clusterPolicy, protocols: "SCTP", endpoints: "b1"}
	all := []*service{&web, &none, &local, &internal, &stays, &associated}
	c.serve("services", all...)
	gone := []*connections{
		c.connect(t, &web, fromAll), c.connect(t, &none, fromAll),
		c.connect(t, &local, "client -> nodePort@node1"), c.connect(t, &internal, "pod1 -> clusterIP"),
	}
	living := c.connect(t, &stays, fromAll)
	associations := c.connect(t, &associated, "client pod1 -> nodePort@node1")
	for _, family := range []string{"ipv4", "ipv6"} { // the lab does not complete associations
		labtest.Run(t, c.Node1.Namespace, "conntrack", "-U", "-f", family, "-p", "sctp",
			"--state", "ESTABLISHED", "--orig-vtag", "1", "--reply-vtag", "1", "-t", "1000")
	}
	n := len(associations.conns)
	for _, conns := range gone {
		n += len(conns.conns)
	}

	c.cutOff(t, "a1", "b1")
	associations.mustHang(t, "cut off")
	associated.endpoints = "b1:stopped a2"
	web.endpoints, none.endpoints, local.endpoints, internal.endpoints = "b1:stopped a2", "b1:stopped",
		"a1:stopped b2", "a1:stopped b2"
	c.serve("services", all...)
	if n := c.resets(t); n != 0 {
		t.Errorf("terminating: got %d resets, want 0", n)
	}
	associated.endpoints = "a2"
	web.endpoints, none.endpoints, local.endpoints, internal.endpoints = "a2", "", "b2", "b2"
	c.serve("services", all...)
	c.awaitResets(t, n)
	for _, conns := range gone {
		conns.mustReset(t, "gone")
	}
	for _, conn := range associations.conns {
		if err := conn.Heartbeat(); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "entries of heartbeats", func() error {
		groups := c.flows(t, "svc/default/associated").Groups
		if len(groups) != 1 || groups[0].States["HEARTBEAT_SENT"] != len(associations.conns) {
			return fmt.Errorf("got %+v, want %d", groups, len(associations.conns))
		}
		return nil
	})
	associations.mustWork(t, "association deleted")
	living.mustWork(t, "others gone")
	c.checks(&local, "client -> nodePort@node1 => dropped").run(t)
	c.checks(&internal, "pod1 -> clusterIP => dropped").run(t)
	c.checks(&none, "client -> nodePort@node1 => refused").run(t)
	c.expectFresh(t, "after resets")

	stays.endpoints = "b2" // its last endpoint was ready: the pod may live
	c.serve("services", all...)
	time.Sleep(2 * time.Second)
	living.mustWork(t, "ready endpoint removed")
	if got := c.resets(t); got != n {
		t.Errorf("got %d resets, want %d", got, n)
	}
}

// TestStaleConnectionsNoticed shows that clients notice at once that their
// endpoint is gone, whether they are idle or repeat a packet at long intervals.
// Without challenges they do not.
func TestStaleConnectionsNoticed(t *testing.T) {
	t.Parallel()
	const unnoticed = `table inet unnoticed {
		chain out { type filter hook output priority 0; tcp flags syn,ack / syn,ack ct state invalid drop; }
	}`
	for name, challenged := range map[string]bool{"challenged": true, "control": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, resetStale)
			if !challenged {
				labtest.Run(t, c.Node1.Namespace, "nft", unnoticed)
			}
			web := service{name: "web", spec: clusterPolicy, protocols: "TCP", endpoints: "b1"}
			c.serve("web", &web)
			conns := c.connect(t, &web, fromAll)
			c.cutOff(t, "b1")
			for i, conn := range conns.conns {
				conn.Conn.(*net.TCPConn).SetKeepAlive(false)
				if i%2 == 0 {
					continue // stays idle
				}
				if _, err := conn.Write([]byte("unanswered\n")); err != nil {
					t.Fatal(err)
				}
			}
			web.endpoints = "b1:stopped a1"
			c.serve("web", &web)
			time.Sleep(7 * time.Second) // clients repeat their packets next after about 12 s
			web.endpoints = "a1"
			removed := time.Now()
			c.serve("web", &web)
			for i, conn := range conns.conns {
				conn.SetReadDeadline(removed.Add(4 * time.Second))
				_, err := conn.Read(make([]byte, 1))
				if errors.Is(err, syscall.ECONNRESET) != challenged {
					t.Errorf("%s: got %v after %v", conns.checks[i].describe, err, time.Since(removed))
				}
			}
			t.Logf("%d connections ended %v after their endpoint was removed", len(conns.conns), time.Since(removed))
		})
	}
}

// TestStaleConnectionsAtRestart shows that endpoints that left while the proxy
// did not run do not count as gone.
func TestStaleConnectionsAtRestart(t *testing.T) {
	t.Parallel()
	c := newCluster(t, resetStale)
	web := service{name: "web", spec: clusterPolicy, protocols: "TCP", endpoints: "b1"}
	c.serve("web", &web)
	conns := c.connect(t, &web, fromAll)
	web.endpoints = "b1:stopped a1"
	c.serve("web", &web)
	c.terminate()
	web.endpoints = "a1"
	c.serve("web", &web)
	c.start()
	c.settle()
	time.Sleep(2 * time.Second)
	conns.mustWork(t, "after the restart")
	if n := c.resets(t); n != 0 {
		t.Errorf("got %d resets, want 0", n)
	}
}

// TestWithoutResets is the control: without the option, connections to
// endpoints that are gone hang.
func TestWithoutResets(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	web := service{name: "web", spec: clusterPolicy, protocols: "TCP", endpoints: "b1"}
	local := service{name: "local", spec: localPolicy, protocols: "TCP", endpoints: "a1"}
	c.serve("services", &web, &local)
	conns := []*connections{c.connect(t, &web, fromAll), c.connect(t, &local, "client -> nodePort@node1")}
	c.cutOff(t, "a1", "b1")
	web.endpoints, local.endpoints = "b1:stopped a2", "a1:stopped b2"
	c.serve("services", &web, &local)
	web.endpoints, local.endpoints = "a2", "b2"
	c.serve("services", &web, &local)
	time.Sleep(2 * time.Second)
	for _, all := range conns {
		all.mustHang(t, "without the option")
	}
	gone := 0
	for _, e := range c.flows(t, "svc/default/web").Groups[0].Endpoints {
		if e.Gone {
			gone += e.Connections
		}
	}
	if want := len(conns[0].conns); gone != want {
		t.Errorf("nftproxy flows marks %d connections to endpoints that are gone, want %d", gone, want)
	}
}

// TestStaleConnectionsOfLocalhost shows that NodePorts on localhost reset their
// connections to an endpoint that is gone.
func TestStaleConnectionsOfLocalhost(t *testing.T) {
	t.Parallel()
	c := newLocalhostCluster(t)
	c.restart(append(localhostFlags("localhost"), resetStale)...)
	web := service{name: "web", spec: "type: NodePort", protocols: "TCP", endpoints: "b1"}
	c.serve("web", &web)
	c.proxies[0].awaitLog(t, "Listening for a NodePort")
	gone := c.connect(t, &web, "loopback -> nodePort@loopback")
	web.endpoints = "a1"
	c.serve("web", &web)
	stays := c.connect(t, &web, "loopback -> nodePort@loopback")
	c.cutOff(t, "b1")
	web.endpoints = "a1 b1:stopped"
	c.serve("web", &web)
	web.endpoints = "a1"
	c.serve("web", &web)
	c.awaitResets(t, len(gone.conns))
	gone.mustReset(t, "gone")
	stays.mustWork(t, "others gone")
}
