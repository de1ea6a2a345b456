package answer

import (
	"context"
	"net/netip"
	"net/url"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// PodName is the name of a pod.
type PodName struct{ Namespace, Name string }

// PodPort is a port of a pod that is an endpoint.
type PodPort struct {
	Address  netip.AddrPort   `json:"address"`
	Protocol cluster.Protocol `json:"protocol"`
}

// Pod asks for the ports of a pod that are endpoints of Services, each once.
var Pod = socket.Question[PodName, PodPort]{
	Path: "/v1/pod",
	Format: func(p PodName) url.Values {
		return url.Values{"namespace": {p.Namespace}, "name": {p.Name}}
	},
	Parse: func(v url.Values) (PodName, error) { return PodName{v.Get("namespace"), v.Get("name")}, nil },
}

// pod answers the question. A pod is an endpoint of Services of its namespace.
func (a *Answers) pod(ctx context.Context, pod PodName, yield func(*PodPort) error) error {
	seen := make(map[PodPort]bool)
	return a.views(ctx, cluster.ServiceName{Namespace: pod.Namespace}, func(s *table.ServiceView) error {
		for i := range s.Ports {
			for _, e := range s.Ports[i].Endpoints {
				p := PodPort{netip.AddrPortFrom(e.Addr, e.Port), s.Ports[i].Protocol}
				if e.Pod != pod.Name || e.Port == 0 || seen[p] {
					continue
				}
				seen[p] = true
				if err := yield(&p); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
