package ruleset

import (
	"fmt"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Optional sets count the new connections to each frontend. Each row counts the
// packets for which a rule finds it. The sets have names that other proxies do
// not use, and no verdicts, so the kernel does not validate them.

// ServiceMetrics selects the Services whose connections are counted.
type ServiceMetrics string

// The values of ServiceMetrics. The default is ServiceMetricsOff.
const (
	ServiceMetricsOff       ServiceMetrics = "off"
	ServiceMetricsAnnotated ServiceMetrics = "annotated" // those with cluster.Service.Metrics
	ServiceMetricsAll       ServiceMetrics = "all"
)

// Validate returns an error if the value is not supported.
func (m ServiceMetrics) Validate() error {
	switch m {
	case "", ServiceMetricsOff, ServiceMetricsAnnotated, ServiceMetricsAll:
		return nil
	}
	return fmt.Errorf("%q is not supported: supported are off, annotated, all", string(m))
}

// Enabled reports whether the connections of any Service are counted.
func (m ServiceMetrics) Enabled() bool { return m == ServiceMetricsAnnotated || m == ServiceMetricsAll }

// counts reports whether the connections of a Service are counted.
func (m ServiceMetrics) counts(svc *cluster.Service) bool {
	return m == ServiceMetricsAll || m == ServiceMetricsAnnotated && svc.Metrics
}

// countConnections returns a rule that counts a connection, if connections are
// counted:
//
//	ip daddr . meta l4proto . th dport @service-connections
func (p *program) countConnections(d *dispatchSets) []nft.Rule {
	if !p.connections {
		return nil
	}
	return []nft.Rule{nft.NewRule(nft.In(d.connections, d.key...))}
}
