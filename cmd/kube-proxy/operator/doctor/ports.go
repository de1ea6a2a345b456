package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// portRange is a range of ports.
type portRange struct{ first, last int }

// String returns 30000-32767, or the only port.
func (r portRange) String() string {
	if r.first == r.last {
		return strconv.Itoa(r.first)
	}
	return fmt.Sprintf("%d-%d", r.first, r.last)
}

func (r portRange) contains(port int) bool { return port >= r.first && port <= r.last }

// defaultNodePorts is the default of the API server
// (--service-node-port-range).
func defaultNodePorts() portRange { return portRange{30000, 32767} }

// checkNodePortRange checks whether this node chooses NodePorts as source ports
// of its own connections. The kernel then takes an answer to the port for a new
// connection to the Service, or the reverse.
func checkNodePortRange(_ context.Context, n *node) Finding {
	text, known, err := n.sysctl("net/ipv4/ip_local_port_range")
	if err != nil || !known {
		return unknownSetting(err)
	}
	local, err := parseRange(strings.Join(strings.Fields(text), "-"))
	if err != nil {
		return unknown(err)
	}
	reserved, err := n.reservedPorts()
	if err != nil {
		return unknown(err)
	}
	chosen := func(port int) bool {
		return local.contains(port) &&
			!slices.ContainsFunc(reserved, func(r portRange) bool { return r.contains(port) })
	}
	return nodePortFinding(local, chosen, nodePorts())
}

func nodePortFinding(local portRange, chosen func(int) bool, inUse []int) Finding {
	remedy := "sysctl -w net.ipv4.ip_local_reserved_ports=30000-32767 (the NodePort range of the cluster), or change " +
		"net.ipv4.ip_local_port_range"
	for _, port := range inUse {
		if chosen(port) {
			return warn(fmt.Sprintf("NodePort %d is in net.ipv4.ip_local_port_range (%s) and not reserved: a "+
				"connection of this node can use it as its source port, and clients of the NodePort collide with it",
				port, local), remedy)
		}
	}
	for port := defaultNodePorts().first; port <= defaultNodePorts().last; port++ {
		if chosen(port) {
			return warn(fmt.Sprintf("net.ipv4.ip_local_port_range (%s) overlaps the default range of NodePorts (%s)",
				local, defaultNodePorts()), remedy)
		}
	}
	return ok(fmt.Sprintf("net.ipv4.ip_local_port_range (%s) contains no NodePort", local))
}

func unknownSetting(err error) Finding {
	if err != nil {
		return unknown(err)
	}
	return skipped("the kernel does not have the setting")
}

// reservedPorts returns the ports that the kernel does not choose.
func (n *node) reservedPorts() (ranges []portRange, err error) {
	text, _, err := n.sysctl("net/ipv4/ip_local_reserved_ports")
	if err != nil {
		return nil, err
	}
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		r, err := parseRange(part)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// parseRange parses 8080 or 30000-32767.
func parseRange(text string) (portRange, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, errFrom := strconv.Atoi(first)
	to, errTo := strconv.Atoi(last)
	if err := cmp.Or(errFrom, errTo); err != nil {
		return portRange{}, fmt.Errorf("range of ports %q: %w", text, err)
	}
	return portRange{from, to}, nil
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
