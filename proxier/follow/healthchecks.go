package follow

import (
	"context"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/healthcheck"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// healthChecks answers load balancers on the health-check NodePorts of one
// address family.
type healthChecks struct {
	idle
	server healthServer
	addrs  []netip.Addr // on which the server listens
}

// healthServer is the part of healthcheck.ServiceServer that healthChecks uses.
type healthServer interface {
	SetService(healthcheck.Service)
	DeleteService(namespace, name string)
	SetAddrs([]netip.Addr)
	Run(context.Context) error
}

func newHealthChecks(config *Config) (*healthChecks, error) {
	server, err := healthcheck.NewServiceServer(healthcheck.ServiceConfig{
		NodeName: config.NodeName,
		Healthy:  config.Healthy,
		Report: func(e healthcheck.Event) {
			config.Events.Record(cluster.Event{
				Kind: "Service", Namespace: e.Namespace, Name: e.Name, Reason: e.Reason, Note: e.Message,
			})
		},
	})
	if err != nil {
		return nil, err
	}
	server.SetAddrs([]netip.Addr{}) // none before the first commit
	return &healthChecks{server: server}, nil
}

func (h *healthChecks) run(ctx context.Context) { h.server.Run(ctx) }

// committed makes the server answer for the Services of a commit.
func (h *healthChecks) committed(c *table.Commit) {
	if addrs := slices.Concat(c.NodePortAddrs, c.LoopbackAddrs); !slices.Equal(addrs, h.addrs) {
		h.addrs = addrs
		h.server.SetAddrs(addrs)
	}
	for _, s := range c.Services {
		if s.HealthCheckNodePort == 0 {
			h.server.DeleteService(s.Name.Namespace, s.Name.Name)
			continue
		}
		h.server.SetService(healthcheck.Service{
			Namespace: s.Name.Namespace, Name: s.Name.Name,
			Port: s.HealthCheckNodePort, LocalEndpoints: s.ReadyEndpoints,
		})
	}
}
