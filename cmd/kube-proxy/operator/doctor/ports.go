package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/net"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// defaultNodePorts is the default of the API server
// (--service-node-port-range).
func defaultNodePorts() net.PortRange { return net.PortRange{Base: 30000, Size: 2768} }

// checkNodePortRange checks whether this node chooses NodePorts as source ports
// of its own connections. The kernel then takes an answer to the port for a new
// connection to the Service, or the reverse.
func checkNodePortRange(_ context.Context, n *node) Finding {
	text, known := n.sysctl("net/ipv4/ip_local_port_range")
	if !known {
		return skipped("the kernel does not have the setting")
	}
	bounds := strings.Join(slices.Compact(strings.Fields(text)), "-")
	local, err := net.ParsePortRange(bounds)
	if err != nil {
		return unknown(err)
	}
	reserved, err := n.reservedPorts()
	if err != nil {
		return unknown(err)
	}
	chosen := func(port int) bool {
		return local.Contains(port) &&
			!slices.ContainsFunc(reserved, func(r *net.PortRange) bool { return r.Contains(port) })
	}
	return nodePortFinding(bounds, chosen, nodePorts())
}

func nodePortFinding(local string, chosen func(int) bool, inUse []int) Finding {
	remedy := "sysctl -w net.ipv4.ip_local_reserved_ports=30000-32767 (the NodePort range of the cluster), or change " +
		"net.ipv4.ip_local_port_range"
	for _, port := range inUse {
		if chosen(port) {
			return warn(fmt.Sprintf("NodePort %d is in net.ipv4.ip_local_port_range (%s) and not reserved: a "+
				"connection of this node can use it as its source port, and clients of the NodePort collide with it",
				port, local), remedy)
		}
	}
	for i := range defaultNodePorts().Size {
		if chosen(defaultNodePorts().Base + i) {
			return warn(fmt.Sprintf("net.ipv4.ip_local_port_range (%s) overlaps the default range of NodePorts (%s)",
				local, defaultNodePorts()), remedy)
		}
	}
	return ok(fmt.Sprintf("net.ipv4.ip_local_port_range (%s) contains no NodePort", local))
}

// reservedPorts returns the ports that the kernel does not choose.
func (n *node) reservedPorts() (ranges []*net.PortRange, err error) {
	text, _ := n.sysctl("net/ipv4/ip_local_reserved_ports")
	for part := range strings.SplitSeq(text, ",") {
		r, err := net.ParsePortRange(part)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// nodePorts returns some NodePorts of the tables.
func nodePorts() (ports []int) {
	for _, f := range families() {
		rows, _ := sampleRows(f, ruleset.NodePortSet) // checkTable reports the table of another program
		for _, row := range rows {
			if port, ok := ruleset.NodePortOf(row); ok {
				ports = append(ports, int(port))
			}
		}
	}
	slices.Sort(ports)
	return ports
}
