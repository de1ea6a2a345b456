package follow

import (
	"context"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/healthcheck/connlimit"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/localhost"
	"github.com/nftproxy/nftproxy/proxier/metric"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// localhostPorts serves the TCP NodePorts of one address family on localhost
// (KEP-6032).
type localhostPorts struct {
	idle
	server localhostServer
}

// localhostServer is the part of localhost.Server that localhostPorts uses.
type localhostServer interface {
	Set(localhost.NodePort)
	Delete(port uint16)
	Reset(port uint16, target netip.AddrPort) int
	Run(context.Context)
	Drain(context.Context)
	Stats() localhost.Stats
	State(port uint16) localhost.State
}

func newLocalhostPorts(config *Config, f nft.Family, limit *connlimit.Limit[uint16]) (*localhostPorts, error) {
	server, err := localhost.New(localhost.Config{
		Addr:  ruleset.LocalhostAddr(f),
		Limit: limit,
		Report: func(e localhost.Event) {
			config.Events.Record(cluster.Event{
				Kind: "Service", Namespace: e.Namespace, Name: e.Name,
				Reason: "FailedToListenOnLocalhost", Note: "node " + config.NodeName + " " + e.Message,
			})
		},
	})
	if err != nil {
		return nil, err
	}
	return &localhostPorts{server: server}, nil
}

func (l *localhostPorts) run(ctx context.Context) { l.server.Run(ctx) }

// collectLocalhost collects the metrics of NodePorts on localhost, which are
// zero for a family that does not serve them.
func collectLocalhost(
	ch chan<- prometheus.Metric, families []nft.Family, served map[nft.Family]*localhostPorts,
) {
	for _, f := range families {
		var stats localhost.Stats
		if ports := served[f]; ports != nil {
			stats = ports.server.Stats()
		}
		m := metric.Values{Family: f, To: ch}
		m.Gauge("kubeproxy_nftables_localhost_nodeport_listeners", "TCP NodePorts that are open on localhost.",
			float64(stats.Listeners))
		m.Counter("kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total",
			"Failures to open a TCP NodePort on localhost.", float64(stats.Failures))
	}
}

const (
	// maxLocalhostConns is the limit of connections to NodePorts on
	// localhost. A connection takes 10 kB.
	maxLocalhostConns = 10_000
	// reservedFiles is the number of open files that these connections leave to
	// all else, such as the listeners of NodePorts.
	reservedFiles = 8000
)

// newLocalhostLimit returns the limit of connections to NodePorts on localhost,
// for all families. A connection takes two open files.
func newLocalhostLimit() *connlimit.Limit[uint16] {
	files := connlimit.OpenFiles()
	return connlimit.New[uint16]("NodePorts on localhost",
		min(maxLocalhostConns, (files-min(reservedFiles, files/2))/2))
}

// committed makes the server serve the NodePorts of a commit.
func (l *localhostPorts) committed(c *table.Commit) {
	changed := make(map[uint16]*ruleset.Plan)
	for _, change := range c.Changes {
		if port := tcpNodePort(change.Before).Port; port != 0 && changed[port] == nil {
			changed[port] = nil
		}
		if port := tcpNodePort(change.After).Port; port != 0 {
			changed[port] = change.After // also if another service port had it
		}
	}
	for port, plan := range changed {
		if plan == nil {
			l.server.Delete(port)
			continue
		}
		l.server.Set(localhostPort(plan))
	}
}

// localhostPort returns the NodePort of a plan. With externalTrafficPolicy
// Local it has the endpoints of this node only, as in kube-proxy. An endpoint
// is listed as often as it has rows, so that random draws follow weights.
func localhostPort(p *ruleset.Plan) localhost.NodePort {
	f := tcpNodePort(p)
	n := localhost.NodePort{
		Port: f.Port, Namespace: p.Service.Name.Namespace, Name: p.Service.Name.Name,
		ServicePort: p.Name().String(), Affinity: p.Service.AffinityTimeout,
	}
	for _, t := range p.Rows(f.Policy) {
		n.Targets = append(n.Targets, t.AddrPort())
	}
	return n
}
