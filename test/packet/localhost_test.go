package packet

import (
	"fmt"
	"io"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

// TestLocalhostEnd shows how the proxy ends while a local process has a
// connection to a NodePort: it closes the port at once, keeps the connection
// until it ends, and keeps its rules current meanwhile.
func TestLocalhostEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--nodeport-addresses", "primary,localhost",
		"--feature-gates", "KubeProxyNFTablesLocalhostNodePorts=true")
	c.addOrigin("loopback", c.Node1.Namespace, c.place("loopback"))
	received, release := c.serveHeld(t)
	web := c.serve(fmt.Sprintf("{name: web, protocols: TCP, spec: {type: NodePort}, endpoints: a1 port=%d}",
		spareTarget))

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
	late := c.serve("{name: late, protocols: TCP, spec: {type: NodePort}, endpoints: b1}")
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
// and answers after release is closed.
func (c *cluster) serveHeld(t *testing.T) (received, release chan struct{}) {
	t.Helper()
	received, release = make(chan struct{}), make(chan struct{})
	listener, err := c.pods["a1"].Listen("tcp", netip.AddrPortFrom(c.pods["a1"].IPv4, spareTarget))
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
	return received, release
}
