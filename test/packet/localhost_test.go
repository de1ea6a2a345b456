package packet

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// localhostFlags returns flags that serve NodePorts on localhost.
func localhostFlags(addresses string) []string {
	return append(defaultFlags(), "--nodeport-addresses", addresses,
		"--feature-gates", "KubeProxyNFTablesLocalhostNodePorts=true")
}

// newLocalhostCluster creates a cluster whose node1 is also the origin
// loopback.
func newLocalhostCluster(t *testing.T) *cluster {
	c := newIdleCluster(t)
	c.addOrigin("loopback", c.Node1.Namespace, c.place("loopback"))
	return c
}

// TestLocalhostNodePorts shows NodePorts on localhost (KEP-6032) with both
// configurations that select it. They are served whether or not the node's own
// addresses are selected too.
func TestLocalhostNodePorts(t *testing.T) {
	t.Parallel()
	c := newLocalhostCluster(t)
	const local = "type: NodePort\nexternalTrafficPolicy: Local"
	all := []scenario{
		{
			service: service{name: "web", spec: "type: NodePort", protocols: "TCP", endpoints: "a1 b1"},
			expect:  "loopback node1 -> nodePort@loopback => a1 b1 as node1",
		},
		{
			service: service{name: "local", spec: local, protocols: "TCP", endpoints: "a1 b1"},
			expect:  "loopback -> nodePort@loopback => a1 as node1",
		},
		{
			service: service{name: "elsewhere", spec: local, protocols: "TCP", endpoints: "b1"},
			expect:  "loopback -> nodePort@loopback => refused",
		},
		{
			service: service{name: "none", spec: "type: NodePort", protocols: "TCP"},
			expect:  "loopback -> nodePort@loopback => refused",
		},
		{
			service: service{name: "terminating", spec: "type: NodePort", protocols: "TCP",
				endpoints: "a1:terminating"},
			expect: "loopback -> nodePort@loopback => a1 as node1",
		},
		{
			service: service{name: "udp", spec: "type: NodePort", protocols: "UDP", endpoints: "a1"},
			expect:  "loopback -> nodePort@loopback => refused",
		},
	}
	web, udp := &all[0], &all[len(all)-1]
	for _, tt := range []struct{ addresses, outside string }{
		{"localhost", "refused"}, {"primary,localhost", "a1 b1 as node1"}, {"127.0.0.1/32,::1/128", "refused"},
	} {
		t.Run(tt.addresses, func(t *testing.T) {
			c.restart(localhostFlags(tt.addresses)...)
			c.runScenarios(t, all)
			c.checks(&web.service, "client -> nodePort@node1 => "+tt.outside).run(t)
			for _, f := range bothFamilies() {
				labels := fmt.Sprintf(`listeners{ip_family="%s"}`, f)
				if n := c.metric(t, localhostMetrics+labels); n != 3 {
					t.Errorf("%s: got %d, want 3", labels, n)
				}
			}
			before := c.rejectedPackets(t)
			c.checks(&udp.service, udp.expect).run(t)
			for i, n := range c.rejectedPackets(t) {
				if n <= before[i] {
					t.Errorf("rejected %v packets: got %d, then %d, want more", family(i), before[i], n)
				}
			}
		})
	}
}

// rejectedPackets returns the number of rejected UDP packets, by family.
func (c *cluster) rejectedPackets(t *testing.T) (n [2]int) {
	t.Helper()
	for _, f := range bothFamilies() {
		n[f] = c.metric(t, localhostMetrics+fmt.Sprintf(`rejected_packets_total{ip_family="%s",protocol="UDP"}`, f))
	}
	return n
}

// localhostMetrics is the prefix of the metrics of NodePorts on localhost.
const localhostMetrics = "kubeproxy_nftables_localhost_nodeport_"

// TestLocalhostSetting shows that a restart with another setting is effective,
// whatever table it finds: kube-proxy keeps NodePorts on localhost off after a
// restart, because a row of the earlier table rejects them (issue 142183 of
// kubernetes).
func TestLocalhostSetting(t *testing.T) {
	t.Parallel()
	c := newLocalhostCluster(t)
	web := &service{name: "web", spec: "type: NodePort", protocols: "TCP", endpoints: "a1 b1", number: 2}
	udp := &service{name: "udp", spec: "type: NodePort", protocols: "UDP", endpoints: "a1", number: 3}
	labtest.Serve(t, udp.nodePort(0), c.Node1.Namespace)
	expect := func(when, tcpOutcome, udpOutcome string) {
		t.Helper()
		c.serve("web", web, udp)
		t.Log(when)
		c.checks(web, "loopback -> nodePort@loopback => "+tcpOutcome).run(t)
		c.checks(udp, "loopback -> nodePort@loopback => "+udpOutcome).run(t)
		c.expectFresh(t, when)
	}
	c.restart(defaultFlags()...)
	expect("without localhost", "refused", "node1 as itself")
	c.restart(localhostFlags("primary,localhost")...)
	expect("with localhost", "a1 b1 as node1", "refused")
	c.restart(defaultFlags()...)
	expect("without localhost again", "refused", "node1 as itself")
	c.terminate()
	for _, p := range c.proxies {
		labtest.Run(t, p.at, "nft", tableOfKubeProxy)
	}
	c.restart(localhostFlags("localhost")...)
	expect("after kube-proxy", "a1 b1 as node1", "refused")
}

// tableOfKubeProxy makes tables such as kube-proxy has them without the
// userspace proxy: they reject NodePorts on localhost.
const tableOfKubeProxy = `
table ip kube-proxy {
	counter localhost-nodeport-rejected-udp { }
	set localhost-nodeports { type inet_proto . inet_service; elements = { tcp . 30020, udp . 30030 } }
	chain output {
		type filter hook output priority -110;
		ip daddr 127.0.0.0/8 meta l4proto . th dport @localhost-nodeports reject
	}
}
table ip6 kube-proxy {
	counter localhost-nodeport-rejected-udp { }
	set localhost-nodeports { type inet_proto . inet_service; elements = { tcp . 30020, udp . 30030 } }
	chain output {
		type filter hook output priority -110;
		ip6 daddr ::1 meta l4proto . th dport @localhost-nodeports reject
	}
}`

// TestLocalhostEnd shows how the proxy ends while a local process has a
// connection to a NodePort: it closes the port at once, keeps the connection
// until it ends, and keeps its rules current meanwhile.
func TestLocalhostEnd(t *testing.T) {
	t.Parallel()
	c := newLocalhostCluster(t)
	c.restart(localhostFlags("primary,localhost")...)
	web := &service{name: "web", spec: "type: NodePort", protocols: "TCP", endpoints: "a1"}
	late := &service{name: "late", spec: "type: NodePort", protocols: "TCP", endpoints: "b1"}
	c.serve("web", web)
	a1, received, release := c.serveHeld(t)
	web.slices = []slice{{endpoints: "a1", target: a1}}
	c.serve("web", web)

	conn, err := c.Node1.DialContext(t.Context(), "tcp", c.destination(web, "nodePort@loopback", ipv4).String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-received: // a connection that the proxy has not accepted ends with its listener
	case <-time.After(answerTimeout):
		t.Fatal("a1 receives no byte")
	}
	p := c.proxies[0]
	p.awaitLog(t, "Listening for a NodePort")
	p.process.Signal(syscall.SIGTERM)
	c.checks(web, "loopback -> nodePort@loopback => refused").await(t)
	c.serve("late", late)
	c.checks(late, "client -> nodePort@node1 => b1 as node1").run(t)

	close(release)
	conn.SetReadDeadline(time.Now().Add(answerTimeout))
	answer, err := io.ReadAll(conn)
	if err != nil || string(answer) != "x, then the end" {
		t.Errorf("got answer %q, %v", answer, err)
	}
	p.wait(t)
}

// serveHeld starts a server in a1 that closes received when it has read a byte,
// and answers after release is closed. It returns its port.
func (c *cluster) serveHeld(t *testing.T) (port uint16, received, release chan struct{}) {
	t.Helper()
	received, release = make(chan struct{}), make(chan struct{})
	var listener net.Listener
	err := c.pods["a1"].Do(func() (err error) {
		listener, err = net.Listen("tcp", fmt.Sprintf(":%d", spareTarget))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		first := make([]byte, 1)
		if _, err := io.ReadFull(conn, first); err != nil {
			return
		}
		close(received)
		<-release
		fmt.Fprintf(conn, "%s, then the end", first)
	}()
	return netip.MustParseAddrPort(listener.Addr().String()).Port(), received, release
}
