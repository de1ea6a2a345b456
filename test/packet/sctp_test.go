package packet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
)

// TestSCTP shows that SCTP is served like other protocols. Few kernels speak it; the first packet of an association says enough.
func TestSCTP(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const spec = "type: LoadBalancer\nexternalIPs: {{.ExternalIPs}}"
	served := service{name: "served", spec: spec, protocols: "SCTP", slices: []slice{{endpoints: "a1"}}}
	local := service{name: "local", spec: spec + "\nexternalTrafficPolicy: Local", protocols: "SCTP", slices: []slice{{endpoints: "a1"}}}
	sticky := service{name: "sticky", spec: spec + "\nsessionAffinity: ClientIP", protocols: "SCTP", slices: []slice{{endpoints: "a1"}}}
	none := service{name: "none", spec: spec, protocols: "SCTP"}
	// Ports of the same number in other protocols are others.
	tcp := service{name: "tcp", protocols: "TCP", slices: []slice{{endpoints: "b1"}}}
	guarded := service{
		name: "guarded", spec: "type: LoadBalancer\nloadBalancerSourceRanges: {{.Ranges \"pod1\"}}",
		protocols: "SCTP", slices: []slice{{endpoints: "a1"}},
	}
	far := service{
		name: "far", spec: spec + "\nexternalTrafficPolicy: Local\ninternalTrafficPolicy: Local",
		protocols: "SCTP", slices: []slice{{endpoints: "b1"}},
	}
	c.write("cidr", serviceCIDR("kubernetes", "10.96.0.0/16", "fd00:96::/112"))
	c.serve("sctp", &served, &local, &sticky, &none, &tcp, &guarded, &far)

	port := uint16(20000)
	arrives := func(s *service, paths string, source string) {
		t.Helper()
		for _, k := range c.checks(s, paths+" => refused") {
			port++
			want := k.origin.source(k.family)
			if source != "" {
				want = c.origin(source).source(k.family)
			}
			packet, err := exchangeInit(t, k, port, c.pods["a1"].Namespace, lab.SCTPInit)
			target := netip.AddrPortFrom(c.pods["a1"].Addrs()[k.family], firstTarget)
			if err != nil || packet.Destination != target || packet.Source.Addr() != want || !packet.ChecksumValid {
				t.Errorf("%s: at the endpoint arrived %+v (%v), want it from %v", k.describe, packet, err, want)
			}
		}
	}
	arrives(&served, "pod1 pod2 node1 -> clusterIP", "")
	arrives(&served, "client -> clusterIP externalIP loadBalancerIP nodePort@node1", "node1")
	arrives(&served, "pod2 -> externalIP nodePort@node2", "node2")
	arrives(&served, "a1 -> clusterIP", "node1")
	arrives(&local, "client pod1 -> externalIP nodePort@node1", "")
	arrives(&sticky, "pod1 -> clusterIP", "")
	arrives(&sticky, "client -> externalIP nodePort@node1", "node1")
	arrives(&guarded, "pod1 -> loadBalancerIP", "node1")

	refused := func(s *service, paths string) {
		t.Helper()
		for _, k := range c.checks(s, paths+" => refused") {
			port++
			packet, err := exchangeInit(t, k, port, k.origin.Namespace, lab.SCTPPortUnreachable)
			if err != nil || packet.Destination != k.to {
				t.Errorf("%s: what came back is %+v (%v), want a port unreachable for %v", k.describe, packet, err, k.to)
			}
		}
	}
	refused(&none, "client pod1 node1 -> clusterIP externalIP loadBalancerIP nodePort@node1")
	tcp.protocols = "SCTP"
	refused(&tcp, "client pod1 node1 -> clusterIP")

	dropped := func(s *service, paths, endpoint string) {
		t.Helper()
		for _, k := range c.checks(s, paths+" => dropped") {
			port++
			mustBeLost(t, k, port, c.pods[endpoint].Namespace)
		}
	}
	dropped(&far, "client pod1 node1 -> clusterIP", "b1")
	dropped(&far, "client -> externalIP nodePort@node1", "b1")
	dropped(&guarded, "client node1 -> loadBalancerIP", "a1")
	unallocated := service{name: "unallocated", protocols: "SCTP", number: 3}
	unallocated.allot(c)
	// The client has the address, and a packet that is not dropped gets there.
	c.addClient("unallocated", [2]netip.Addr{
		unallocated.address(lab.ServiceRanges(), ipv4), unallocated.address(lab.ServiceRanges(), ipv6),
	})
	for _, k := range c.checks(&unallocated, "pod1 node1 -> clusterIP => dropped") {
		port++
		mustBeLost(t, k, port, c.Client)
	}
}

// mustBeLost sends the first packet of an association from a port. Nothing may
// arrive at the endpoint, and no answer may come back.
func mustBeLost(t *testing.T, k *check, port uint16, endpoint *lab.Namespace) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), silence)
	defer cancel()
	var wait sync.WaitGroup
	for _, at := range []*lab.Namespace{endpoint, k.origin.Namespace} {
		capture, err := at.CaptureSCTP()
		if err != nil {
			t.Fatal(err)
		}
		defer capture.Close()
		wait.Go(func() {
			for {
				packet, err := capture.Next(ctx)
				switch {
				case errors.Is(err, os.ErrDeadlineExceeded):
					return
				case err != nil:
					t.Error(err)
					return
				case at == endpoint || packet.Event != lab.SCTPInit: // an origin may see its own
					t.Errorf("%s: at %s arrived %+v, want nothing", k.describe, at.Name, packet)
				}
			}
		})
	}
	if err := k.origin.SendSCTPInit(netip.AddrPortFrom(k.origin.local[k.family], port), k.to); err != nil {
		t.Error(err)
	}
	wait.Wait()
}

// exchangeInit sends the first packet of an association from a port and waits for an event that it leads to in a namespace.
func exchangeInit(t *testing.T, k *check, port uint16, at *lab.Namespace, event lab.SCTPEvent) (lab.SCTPPacket, error) {
	t.Helper()
	capture, err := at.CaptureSCTP()
	if err != nil {
		t.Fatal(err)
	}
	defer capture.Close()
	from := netip.AddrPortFrom(k.origin.local[k.family], port)
	if err := k.origin.SendSCTPInit(from, k.to); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), answerTimeout)
	defer cancel()
	for {
		packet, err := capture.Next(ctx)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return packet, fmt.Errorf("no %v within %v", event, answerTimeout)
		case err != nil:
			t.Fatal(err)
		case packet.Event == event:
			return packet, nil
		}
	}
}
