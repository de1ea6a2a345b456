package packet

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/test/lab"
)

// awaitNoFlows waits until no UDP flow in a namespace is translated to a port of a pod.
func awaitNoFlows(t testing.TB, at, pod *lab.Namespace, port uint16) {
	t.Helper()
	eventually(t, "UDP flows in "+at.Name, func() error {
		flows, err := translatedFlows(at)
		if err != nil {
			return err
		}
		for _, flow := range flows {
			for _, addr := range pod.Addrs() {
				if flow.Reply.Src == netip.AddrPortFrom(addr, port) {
					return fmt.Errorf("there is still %v", flow)
				}
			}
		}
		return nil
	})
}

// translatedFlows lists the UDP flows with DNAT in a namespace.
func translatedFlows(at *lab.Namespace) (flows []conntrack.Flow, err error) {
	err = at.Do(func() error {
		conn, err := conntrack.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		for flow, err := range conn.Flows(conntrack.Filter{Protocol: unix.IPPROTO_UDP}) {
			if err != nil {
				return err
			}
			if flow.DNATed() {
				flows = append(flows, flow)
			}
		}
		return nil
	})
	return flows, err
}
