package operator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// destinations are the forms of a destination.
const destinations = "IP:PORT, SERVICE[:PORT] or pod/NAMESPACE/NAME[:PORT]"

// argument checks that a command has one argument, or none if it is optional.
func argument(what string, optional bool) cobra.PositionalArgs {
	verb := "needs"
	if optional {
		verb = "takes"
	}
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 || optional && len(args) == 0 {
			return nil
		}
		return fmt.Errorf("%s %s one argument, %s; got %d", cmd.Name(), verb, what, len(args))
	}
}

// destination is the destination of a packet: an address, the addresses of a
// pod, or a Service.
type destination struct {
	at      []answer.PodPort // an address has no protocol
	pod     string           // the reference to the pod, "" without one
	service *serviceRef      // nil for addresses
}

// serviceRef is a reference to a Service, and to one of its ports.
type serviceRef struct {
	cluster.ServiceName
	port string // a number or a name, "" for the only port
}

// parseDestination parses IP:PORT, or the name of a Service or pod, which can
// have a port.
func (f *serviceFlags) parseDestination(ctx context.Context, text string) (to destination, err error) {
	at, err := netip.ParseAddrPort(text)
	switch {
	case strings.HasPrefix(text, podPrefix):
		to.at, err = f.podPorts(ctx, text)
		to.pod = text
		return to, err
	case err != nil:
		return f.parseServicePort(text)
	case at.Port() == 0:
		return to, misusef("destination %s has port 0", text)
	case at.Addr().Zone() != "" || at.Addr().Is4In6():
		return to, misusef("destination %s is neither a plain IPv4 nor a plain IPv6 address", text)
	}
	return destination{at: []answer.PodPort{{Address: at}}}, nil
}

// parseServicePort parses the name of a Service, which can have a port.
func (f *serviceFlags) parseServicePort(text string) (to destination, err error) {
	if addr, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return to, misusef("destination %q has no port: want %s", text, netip.AddrPortFrom(addr, 80))
	}
	full, port, hasPort := strings.Cut(text, ":")
	name, err := f.parseName(full)
	if err != nil || hasPort && port == "" || strings.Contains(port, ":") {
		return to, misusef("destination %q is not %s", text, destinations)
	}
	return destination{service: &serviceRef{name, port}}, nil
}

// podPrefix is the beginning of a reference to a pod.
const podPrefix = "pod/"

// podPorts asks the proxy for the ports of the pod of a reference
// pod/NAMESPACE/NAME[:PORT], or for the one with the number.
func (f *proxyFlags) podPorts(ctx context.Context, text string) (ports []answer.PodPort, err error) {
	full, number, hasPort := strings.Cut(strings.TrimPrefix(text, podPrefix), ":")
	namespace, name, ok := strings.Cut(full, "/")
	port, errPort := strconv.ParseUint(number, 10, 16)
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") || hasPort && (errPort != nil || port == 0) {
		return nil, misusef("%q is not %sNAMESPACE/NAME[:PORT]", text, podPrefix)
	}
	known := make(map[netip.Addr]bool)
	for p, err := range answer.Pod.Ask(ctx, &f.client, answer.PodName{Namespace: namespace, Name: name}) {
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", text, err)
		case !hasPort:
			ports = append(ports, *p)
		case !known[p.Address.Addr()]: // any port, which may be no endpoint
			known[p.Address.Addr()] = true
			ports = append(ports, answer.PodPort{Address: netip.AddrPortFrom(p.Address.Addr(), uint16(port))})
		}
	}
	if len(ports) == 0 {
		return nil, fmt.Errorf("%s: no EndpointSlice has the pod: give its address", text)
	}
	return ports, nil
}

// parseFrom parses the addresses of the flag --from, none unless it has one.
func (f *destinationFlags) parseFrom(ctx context.Context) error {
	if strings.HasPrefix(f.from, podPrefix) {
		ports, err := f.podPorts(ctx, f.from)
		for _, p := range ports {
			f.sources = append(f.sources, p.Address.Addr())
		}
		return err
	}
	if addr, err := netip.ParseAddr(f.from); err == nil {
		f.sources = []netip.Addr{addr}
	}
	return nil
}

// ports returns the service ports of a destination. An address is the frontend
// of a port of each protocol, without a name and without a Service.
func (f *destinationFlags) ports(
	ctx context.Context, text string,
) (ports []table.PortView, service *table.ServiceView, err error) {
	to, err := f.parseDestination(ctx, text)
	switch {
	case err != nil:
		return nil, nil, err
	case to.service != nil:
		return f.servicePorts(ctx, to.service)
	}
	for _, at := range to.at {
		frontend := table.FrontendView{Address: at.Address.Addr(), Port: at.Address.Port()}
		for _, p := range cluster.Protocols() {
			if (f.protocol == 0 || f.protocol == p) && (at.Protocol == 0 || at.Protocol == p) {
				ports = append(ports, table.PortView{Protocol: p, Frontends: []table.FrontendView{frontend}})
			}
		}
	}
	return ports, nil, nil
}

// servicePorts asks the proxy for the ports of a Service to which a reference
// refers: all if it has no port, at least one. It completes the reference with
// the namespace.
func (f *destinationFlags) servicePorts(
	ctx context.Context, s *serviceRef,
) (found []table.PortView, service *table.ServiceView, err error) {
	service, err = f.findService(ctx, s.ServiceName)
	if err != nil {
		return nil, nil, err
	}
	s.ServiceName = service.ServiceName
	for _, p := range service.Ports {
		byName := s.port == "" || s.port == p.Name || s.port == strconv.Itoa(int(p.Port))
		if byName && (f.protocol == 0 || f.protocol == p.Protocol) {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		wanted := strings.TrimSpace(f.protocolName + " port " + s.port)
		err = fmt.Errorf("svc/%s has no %s: it has %s", s, wanted, portList(service.Ports))
	}
	return found, service, err
}

// findService asks the proxy for a Service. A name without a namespace must be
// that of one Service only.
func (f *serviceFlags) findService(ctx context.Context, name cluster.ServiceName) (*table.ServiceView, error) {
	var found []*table.ServiceView
	for s, err := range answer.Services.Ask(ctx, &f.client, name) {
		switch {
		case errors.Is(err, socket.ErrNoProxy):
			return nil, fmt.Errorf("svc/%s: %w; without one, give an address as IP:PORT", nameOf(name), err)
		case err != nil:
			return nil, f.explainMissing(ctx, name, err)
		}
		found = append(found, s)
	}
	switch len(found) {
	case 0: // it was deleted a moment ago
		return nil, fmt.Errorf("%s: %w", nameOf(name), answer.ErrNoService)
	case 1:
		return found[0], nil
	}
	var names []string
	for _, s := range found {
		names = append(names, s.ServiceName.String())
	}
	return nil, fmt.Errorf("several Services have the name %s: %s", name.Name, strings.Join(names, ", "))
}

// portList returns the names and numbers of ports.
func portList(ports []table.PortView) string {
	var texts []string
	for _, p := range ports {
		text := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
		if p.Name != "" {
			text = p.Name + " (" + text + ")"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

// Some values of the flag --frontend.
const (
	frontendDefault = "clusterip"
	frontendAll     = "all"
)

// frontendNames returns the values of --frontend.
func frontendNames() []string {
	return []string{frontendDefault, "nodeport", "loadbalancer", "externalip", frontendAll}
}

// frontendKinds are the kinds of frontends that values of --frontend select.
var frontendKinds = map[string]ruleset.AddressKind{
	frontendDefault: ruleset.ClusterIP, "nodeport": ruleset.NodePort, "loadbalancer": ruleset.LoadBalancerIP,
	"externalip": ruleset.ExternalIP,
}

// selectFrontends returns the frontends that --frontend selects, and the
// others. A Service in manifests can have no ClusterIP; then all are selected
// by default.
func selectFrontends(all []table.FrontendView, flag string, isDefault bool) (selected, others []table.FrontendView) {
	kind := frontendKinds[flag]
	has := slices.ContainsFunc(all, func(f table.FrontendView) bool { return f.Kind == kind })
	if flag == frontendAll || (isDefault && !has) {
		return all, nil
	}
	for _, f := range all {
		if f.Kind == kind {
			selected = append(selected, f)
		} else {
			others = append(others, f)
		}
	}
	return selected, others
}

// frontendList returns the kinds and addresses of frontends. A NodePort of two
// families is listed once.
func frontendList(frontends []table.FrontendView) string {
	var texts []string
	for _, f := range frontends {
		text := fmt.Sprintf("%s %d", f.Kind, f.Port)
		if f.Address.IsValid() {
			text = fmt.Sprintf("%s %s", f.Kind, netip.AddrPortFrom(f.Address, f.Port))
		}
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, ", ")
}

// addressesOf returns the addresses of a frontend. The unspecified address
// stands for all addresses of this node.
func addressesOf(f *table.FrontendView) (addrs []netip.AddrPort) {
	if f.Address.IsValid() {
		return []netip.AddrPort{netip.AddrPortFrom(f.Address, f.Port)}
	}
	for _, addr := range f.Addresses {
		addrs = append(addrs, netip.AddrPortFrom(addr, f.Port))
	}
	if len(addrs) == 0 {
		addrs = []netip.AddrPort{netip.AddrPortFrom(f.Family.Unspecified(), f.Port)}
	}
	return addrs
}
