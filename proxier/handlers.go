package proxier

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// changed requests a sync of the families that have to take changes, unless the
// source calls Sync itself.
func (p *Proxier) changed() {
	for _, f := range p.families {
		if !p.config.ExplicitSync && p.tracker.late(f.table.Family()) {
			f.request()
		}
	}
}

// SetService adds a Service or replaces the one with the same name.
func (p *Proxier) SetService(svc *translate.Service) {
	p.tracker.setService(svc)
	p.changed()
}

// DeleteService deletes a Service.
func (p *Proxier) DeleteService(name cluster.ServiceName) {
	p.SetService(&translate.Service{Name: name})
}

// OnServiceAdd is called for each new Service.
func (p *Proxier) OnServiceAdd(svc *corev1.Service) { p.SetService(translate.ParseService(svc)) }

// OnServiceUpdate is called when a Service was changed.
func (p *Proxier) OnServiceUpdate(_, svc *corev1.Service) { p.SetService(translate.ParseService(svc)) }

// OnServiceDelete is called when a Service was deleted.
func (p *Proxier) OnServiceDelete(svc *corev1.Service) {
	p.DeleteService(cluster.ServiceName{Namespace: svc.Namespace, Name: svc.Name})
}

// OnServiceSynced is called after OnServiceAdd was called for all existing
// Services.
func (p *Proxier) OnServiceSynced() {
	p.tracker.synced(&p.tracker.servicesSynced)
	p.changed()
}

// SetEndpointSlice adds an EndpointSlice or replaces the one with the same
// name.
func (p *Proxier) SetEndpointSlice(slice *translate.EndpointSlice) {
	p.tracker.setSlice(slice)
	p.changed()
}

// DeleteEndpointSlice deletes an EndpointSlice.
func (p *Proxier) DeleteEndpointSlice(name translate.SliceName) {
	p.SetEndpointSlice(&translate.EndpointSlice{Name: name})
}

// OnEndpointSliceAdd is called for each new EndpointSlice.
func (p *Proxier) OnEndpointSliceAdd(slice *discoveryv1.EndpointSlice) {
	p.SetEndpointSlice(translate.ParseEndpointSlice(slice))
}

// OnEndpointSliceUpdate is called when an EndpointSlice was changed.
func (p *Proxier) OnEndpointSliceUpdate(_, slice *discoveryv1.EndpointSlice) {
	p.SetEndpointSlice(translate.ParseEndpointSlice(slice))
}

// OnEndpointSliceDelete is called when an EndpointSlice was deleted.
func (p *Proxier) OnEndpointSliceDelete(slice *discoveryv1.EndpointSlice) {
	p.DeleteEndpointSlice(translate.SliceName{Namespace: slice.Namespace, Name: slice.Name})
}

// OnEndpointSlicesSynced is called after OnEndpointSliceAdd was called for all
// existing EndpointSlices.
func (p *Proxier) OnEndpointSlicesSynced() {
	p.tracker.synced(&p.tracker.slicesSynced)
	p.changed()
}

// OnNodeAdd is called for each new Node. It ignores Nodes other than this one.
func (p *Proxier) OnNodeAdd(node *corev1.Node) { p.OnNodeUpdate(nil, node) }

// OnNodeUpdate is called when a Node was changed.
func (p *Proxier) OnNodeUpdate(_, node *corev1.Node) {
	if node.Name == p.config.NodeName {
		p.setNode(p.node.setObject(node))
	}
}

// OnNodeDelete is called when a Node was deleted. The Proxier keeps the
// addresses and CIDRs of this node, because the machine is still the same.
func (p *Proxier) OnNodeDelete(node *corev1.Node) {
	if node.Name == p.config.NodeName {
		klog.InfoS("The Node object was deleted", "node", klog.KObj(node))
		p.setNode(p.node.setObject(nil))
	}
}

// OnNodeSynced is called after OnNodeAdd was called for all existing Nodes.
func (p *Proxier) OnNodeSynced() { p.node.logMissing() }

// OnServiceCIDRsChanged is called with the ranges that ClusterIPs are allocated
// from.
func (p *Proxier) OnServiceCIDRsChanged(cidrs []string) {
	p.setNode(p.node.change(func(n *cluster.Node) { n.ServiceCIDRs = translate.Prefixes(cidrs) }))
}

// onLocalAddresses is called with the addresses of this node.
func (p *Proxier) onLocalAddresses(ips []netip.Addr) {
	changed := p.node.change(func(n *cluster.Node) {
		n.LocalIPs, n.NodePortIPs = ips, within(ips, p.config.Rules.NodePortAddresses.CIDRs)
	})
	if p.setNode(changed); changed {
		p.Sync() // a source with ExplicitSync does not notice this change
	}
}

// setNode records a change of this node, unless nothing changed.
func (p *Proxier) setNode(changed bool) {
	if changed {
		p.tracker.nodeChanged()
		p.changed()
	}
}
