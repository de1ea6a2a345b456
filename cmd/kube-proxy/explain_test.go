package main

import (
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// explain describes what the proxy does with connections to NodePorts on
// localhost, which no rule translates.
func TestExplainLocalhost(t *testing.T) {
	tabletest.NewNode(t)
	for _, endpoint := range []string{"10.244.2.7", "10.244.2.8"} { // they refuse connections
		if out, err := exec.Command("ip", "address", "add", endpoint, "dev", "lo").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	used, err := net.Listen("tcp4", "127.0.0.1:30084")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	n := startProxy(t, "", "testdata/localhost", "--nodeport-addresses", "primary,localhost",
		"--feature-gates", "KubeProxyNFTablesLocalhostNodePorts=true")
	n.awaitStatus(t, 0)
	const forwarded = "source address masqueraded: the proxy itself forwards connections to NodePorts on localhost"
	tests := []struct{ to, want string }{
		{"127.0.0.1:30080", "ANSWER  one of 2 endpoints, " + forwarded + " [Localhost]\n" +
			"        10.244.1.5:8080  1/2\n        10.244.2.5:8080  1/2\n\nROUTE   2 endpoints  through lo\n\n" +
			"UNUSED  10.244.3.5:8080  not ready (node3) [NotReady]\n"},
		{"127.0.0.1:30081", "ANSWER  rejected (TCP reset): default/local has externalTrafficPolicy Local and no " +
			"ready endpoint on this node: all 1 are on other nodes [NoLocalEndpoints]\n\nUNUSED  10.244.2.6:8080  on " +
			"another node (node2) [OtherNode]\n"},
		{"127.0.0.1:30082", "ANSWER  rejected (TCP reset): default/none has no selector, and no EndpointSlice has an " +
			"IPv4 endpoint for it [NoSlices]\n"},
		{"127.0.0.1:30083", "ANSWER  one of 2 endpoints, " + forwarded +
			"; session affinity: a new client [Localhost]\n"},
		{"127.0.0.1:30084", "ANSWER  not translated: the proxy cannot serve the NodePort: "},
		{"127.0.0.1:30085", "ANSWER  not translated: rules do not translate packets to localhost; "},
		{"127.0.0.1:30053 --protocol udp", "ANSWER  rejected (ICMP port unreachable): localhost does not serve "},
	}
	for _, test := range tests {
		n.wantExplained(t, test.to, test.want)
	}
	// The endpoint refuses, so the connection is reset, perhaps before Dial
	// returns.
	if conn, err := net.Dial("tcp4", "127.0.0.1:30083"); err == nil {
		conn.Read(make([]byte, 1))
		conn.Close()
	}
	n.wantExplained(t, "127.0.0.1:30083", "ANSWER  endpoint 10.244.2.")
	n.wantExplained(t, "127.0.0.1:30083", forwarded+"; session affinity: a known client [Localhost]\n")
}

// wantExplained checks the output of explain.
func (n *node) wantExplained(t *testing.T, arguments, want string) {
	t.Helper()
	out, code := n.nftproxy(t, nil, append([]string{"explain"}, strings.Fields(arguments)...)...)
	if code != 0 || !strings.Contains(out, want) {
		t.Errorf("explain %s: got exit code %d and\n%s\nwant\n%s", arguments, code, out, want)
	}
}
