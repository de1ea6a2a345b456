package answer

import (
	"context"
	"math/rand/v2"
	"net/netip"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/eject/probe"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// PortEndpoints are the endpoints of a service port that new TCP connections
// reach, and that may be probed.
type PortEndpoints struct {
	Service cluster.ServiceName `json:"service"`
	Port    string              `json:"port,omitempty"` // the name of the port in the Service
	Used    int                 `json:"used"`           // number of all
	Sample  []UsedEndpoint      `json:"sample"`         // some, in random order
}

// UsedEndpoint is an endpoint of a service port. Node is empty if it is
// unknown.
type UsedEndpoint struct {
	Address netip.AddrPort `json:"address"`
	Node    string         `json:"node,omitempty"`
	Pod     string         `json:"pod,omitempty"` // its name, "" if it is unknown
}

// Endpoints asks for some endpoints of each service port of TCP that has one.
var Endpoints = socket.Plain[PortEndpoints]("/v1/endpoints")

// sampleSize is the number of endpoints of a service port in an answer.
const sampleSize = 6

// endpoints answers the question.
func (a *Answers) endpoints(ctx context.Context, _ struct{}, yield func(*PortEndpoints) error) error {
	return a.views(ctx, cluster.ServiceName{}, func(s *table.ServiceView) error {
		for _, p := range EndpointsOf(s) {
			if err := yield(&p); err != nil {
				return err
			}
		}
		return nil
	})
}

// EndpointsOf returns what the question Endpoints asks for, of one Service.
func EndpointsOf(s *table.ServiceView) (all []PortEndpoints) {
	for i := range s.Ports {
		p := &s.Ports[i]
		if p.Protocol != cluster.TCP {
			continue
		}
		found := PortEndpoints{Service: s.ServiceName, Port: p.Name}
		for i := range p.Endpoints {
			e := &p.Endpoints[i]
			used := e.For(cluster.PolicyCluster) == "" || e.For(cluster.PolicyLocal) == ""
			if !used || e.Port == 0 || !probe.Allowed(e.Addr) {
				continue
			}
			// Each endpoint has the same chance to be in the sample.
			found.Used++
			at := found.Used - 1
			if at >= sampleSize {
				at = rand.IntN(found.Used)
			} else {
				found.Sample = append(found.Sample, UsedEndpoint{})
			}
			if at < sampleSize {
				found.Sample[at] = UsedEndpoint{netip.AddrPortFrom(e.Addr, e.Port), e.Node, e.Pod}
			}
		}
		if found.Used > 0 {
			all = append(all, found)
		}
	}
	return all
}
