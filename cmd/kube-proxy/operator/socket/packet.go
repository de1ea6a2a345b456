package socket

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// formatPacket returns a packet as the parameters of a query.
func formatPacket(q *explain.Query) url.Values {
	return url.Values{
		"destination": {q.Destination.String()}, "protocol": {strconv.Itoa(int(q.Protocol))},
		"source": {q.Source.String()}, "from": {q.From}, "interface": {q.Interface},
	}
}

// parsePacket returns the packet of formatPacket.
func parsePacket(parameter func(string) string) (explain.Query, error) {
	q := explain.Query{From: parameter("from"), Interface: parameter("interface")}
	var err error
	if q.Destination, err = netip.ParseAddrPort(parameter("destination")); err != nil {
		return q, fmt.Errorf("parameter destination: %w", err)
	}
	protocol, err := strconv.ParseUint(parameter("protocol"), 10, 8)
	if err != nil {
		return q, fmt.Errorf("parameter protocol: %w", err)
	}
	q.Protocol = cluster.Protocol(protocol)
	if q.Source, err = netip.ParseAddr(parameter("source")); err != nil {
		return q, fmt.Errorf("parameter source: %w", err)
	}
	return q, nil
}
