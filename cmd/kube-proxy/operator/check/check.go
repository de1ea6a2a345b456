// Package check validates a folder of manifests, and computes what a proxy
// would serve of it. It needs neither a proxy nor the kernel.
package check

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/manifest"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// Result is what a proxy would serve.
type Result struct {
	*manifest.Report
	Services []*table.ServiceView `json:"services"`
}

// ownPorts is the default of healthzBindAddress.
var ownPorts = []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), 10256)}

// Run reads a folder for a node. Without a name, it is the node of the only
// Node object, if there is one.
func Run(dir, node string) (*Result, error) {
	rules := ruleset.Config{DetectLocal: ruleset.LocalDetection{Mode: ruleset.DetectLocalClusterCIDR}}
	tables, err := table.New(table.Config{Rules: rules, OwnPorts: ownPorts}, nft.IPv4, nft.IPv6)
	if err != nil {
		return nil, err
	}
	o := objects{
		services: make(map[cluster.ServiceName]*translate.Service), sliced: make(map[cluster.ServiceName]bool),
	}
	report, err := manifest.Check(dir, &o)
	if err != nil {
		return nil, err
	}
	if len(o.nodes) == 1 {
		node = cmp.Or(node, o.nodes[0].Name)
	}
	var all cluster.Sinks
	for _, t := range tables {
		all = append(all, t)
	}
	all.SetNode(o.node(node))
	o.passTo(all)
	r := &Result{Report: report, Services: []*table.ServiceView{}}
	o.warn(r)
	for _, name := range slices.SortedFunc(maps.Keys(o.services), cluster.ServiceName.Compare) {
		if view := viewOf(tables, name); view != nil {
			if !o.sliced[name] {
				view.WithoutSlices()
			}
			r.Services = append(r.Services, view)
			r.addConflicts(view)
		}
	}
	return r, nil
}

// viewOf returns the state of a Service in all families, nil if it is not
// served.
func viewOf(tables []*table.Table, name cluster.ServiceName) (all *table.ServiceView) {
	for _, t := range tables {
		view, ok := t.Service(name)
		view.Pending = false // until the first sync of a proxy
		switch {
		case !ok:
		case all == nil:
			all = &view
		default:
			all.Add(&view)
		}
	}
	return all
}

// addConflicts adds the frontends that belong to another Service.
func (r *Result) addConflicts(s *table.ServiceView) {
	add := func(text string) {
		problem := r.At("Service", s.Namespace, s.Name, text)
		if !slices.Contains(r.Problems, problem) { // a NodePort is a frontend in each family
			r.Problems, r.ProblemCount = append(r.Problems, problem), r.ProblemCount+1
		}
	}
	if s.HealthCheckOwner != "" {
		add(fmt.Sprintf("spec.healthCheckNodePort: %d belongs to %s", s.HealthCheckNodePort, s.HealthCheckOwner))
	}
	for i := range s.Ports {
		p := &s.Ports[i]
		for _, f := range p.Frontends {
			if f.State != ruleset.Conflict {
				continue
			}
			at := ruleset.Frontend{Addr: f.Address, Port: f.Port, Proto: p.Protocol}
			add(fmt.Sprintf("spec.ports[%d]: gets no traffic on %s: it belongs to %s", i, at, f.Owner))
		}
	}
}

// objects are the objects of a folder. It implements manifest.Handler.
type objects struct {
	services map[cluster.ServiceName]*translate.Service
	slices   []*discoveryv1.EndpointSlice
	sliced   map[cluster.ServiceName]bool // has an EndpointSlice
	nodes    []*corev1.Node
	cidrs    []string
}

var _ manifest.Handler = (*objects)(nil)

// node returns the node with a name, with what is known about it.
func (o *objects) node(name string) *cluster.Node {
	n := &cluster.Node{Name: name, ServiceCIDRs: translate.Prefixes(o.cidrs)}
	for _, node := range o.nodes {
		if node.Name == name {
			n.Zone, n.IPs = node.Labels[corev1.LabelTopologyZone], translate.NodeIPs(node)
		}
	}
	return n
}

// passTo passes the Services and their endpoints to a sink.
func (o *objects) passTo(to cluster.Sink) {
	for _, name := range slices.SortedFunc(maps.Keys(o.services), cluster.ServiceName.Compare) {
		if svc := o.services[name].Service; svc != nil {
			to.SetService(svc)
		}
	}
	for _, object := range o.slices {
		slice := translate.ParseEndpointSlice(object)
		if slice.Service != (cluster.ServiceName{}) {
			to.SetEndpoints(slice.Service, slice.Name.Name, slice.Endpoints)
		}
	}
}

// warn adds warnings about fields that are ignored, and about EndpointSlices
// without a Service.
func (o *objects) warn(r *Result) {
	add := func(kind, namespace, name, text string) {
		r.Warnings = append(r.Warnings, r.At(kind, namespace, name, text))
	}
	for name, svc := range o.services {
		for _, err := range svc.Problems {
			add("Service", name.Namespace, name.Name, err.Error()+"; the field is ignored")
		}
	}
	for _, slice := range o.slices {
		for _, err := range translate.ParseEndpointSlice(slice).Problems {
			add("EndpointSlice", slice.Namespace, slice.Name, err.Error()+"; the field is ignored")
		}
		of := cluster.ServiceName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		o.sliced[of] = true
		if o.services[of] == nil {
			add("EndpointSlice", slice.Namespace, slice.Name,
				fmt.Sprintf("metadata.labels[%s]: there is no Service %s", discoveryv1.LabelServiceName, of))
		}
	}
	slices.SortStableFunc(r.Warnings, func(a, b manifest.Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Text, b.Text))
	})
}

// OnServiceUpdate implements manifest.Handler.
func (o *objects) OnServiceUpdate(_, svc *corev1.Service) {
	parsed := translate.ParseService(svc)
	o.services[parsed.Name] = parsed
}

// OnEndpointSliceUpdate implements manifest.Handler.
func (o *objects) OnEndpointSliceUpdate(_, slice *discoveryv1.EndpointSlice) {
	o.slices = append(o.slices, slice)
}

// OnNodeUpdate implements manifest.Handler.
func (o *objects) OnNodeUpdate(_, node *corev1.Node) { o.nodes = append(o.nodes, node) }

// OnServiceCIDRsChanged implements manifest.Handler.
func (o *objects) OnServiceCIDRsChanged(cidrs []string) { o.cidrs = cidrs }

// The other methods of manifest.Handler are not called for a folder that is
// read once, or need no action.
func (o *objects) OnServiceDelete(*corev1.Service)                  {}
func (o *objects) OnServiceSynced()                                 {}
func (o *objects) OnEndpointSliceDelete(*discoveryv1.EndpointSlice) {}
func (o *objects) OnEndpointSlicesSynced()                          {}
func (o *objects) OnNodeDelete(*corev1.Node)                        {}
func (o *objects) OnNodeSynced()                                    {}
func (o *objects) Sync()                                            {}
