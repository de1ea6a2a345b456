package main

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/nftproxy/nftproxy/proxier/manifest"
)

//go:embed manifests/*.yaml
var embedded embed.FS

// manifests is a folder of manifests and its Services.
type manifests struct {
	// Handler is nil. The first round of a manifest.Source calls only the
	// methods below.
	manifest.Handler
	synced context.CancelFunc

	folder   string
	services map[string]*corev1.Service // by namespace/name
}

func (m *manifests) OnServiceAdd(s *corev1.Service)                { m.services[s.Namespace+"/"+s.Name] = s }
func (m *manifests) OnEndpointSliceAdd(*discoveryv1.EndpointSlice) {}
func (m *manifests) OnNodeAdd(*corev1.Node)                        {}
func (m *manifests) OnServiceCIDRsChanged([]string)                {}
func (m *manifests) OnNodeSynced()                                 {}
func (m *manifests) OnServiceSynced()                              {}
func (m *manifests) OnEndpointSlicesSynced()                       {}
func (m *manifests) Sync()                                         { m.synced() }

// newManifests writes the embedded manifests to parent/manifests and reads
// them there.
func newManifests(parent string) (*manifests, error) {
	if err := os.CopyFS(parent, embedded); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	m := &manifests{synced: cancel, folder: filepath.Join(parent, "manifests"), services: map[string]*corev1.Service{}}
	if err := m.setEndpoints("shop/web", firstPods()...); err != nil {
		return nil, err
	}
	return m, manifest.New(manifest.Config{Dir: m.folder, Handler: m}).Run(ctx)
}

// endpointsFile returns the file with the EndpointSlices of a Service.
func (m *manifests) endpointsFile(service string) string {
	return filepath.Join(m.folder, strings.ReplaceAll(service, "/", "-")+"-endpoints.yaml")
}

// setEndpoints replaces the endpoints of a Service. It renames a complete file,
// so that kube-proxy never reads a part of it.
func (m *manifests) setEndpoints(service string, pods ...string) error {
	file := m.endpointsFile(service)
	data, err := embedded.ReadFile("manifests/" + filepath.Base(file))
	if err != nil {
		return err
	}
	draft := filepath.Join(m.folder, ".draft") // kube-proxy ignores hidden files
	if err := os.WriteFile(draft, filterEndpoints(data, pods), 0o644); err != nil {
		return err
	}
	return os.Rename(draft, file)
}

// filterEndpoints removes the lines with endpoints that are other pods.
func filterEndpoints(yaml []byte, pods []string) []byte {
	var kept []byte
	for line := range bytes.Lines(yaml) {
		_, target, isEndpoint := bytes.Cut(line, []byte("kind: Pod, name: "))
		if name, _, _ := strings.Cut(string(target), "}"); !isEndpoint || slices.Contains(pods, name) {
			kept = append(kept, line...)
		}
	}
	return kept
}

// destination is an address of a Service that clients connect to.
type destination string

const (
	clusterIP      destination = "ClusterIP"
	externalIP     destination = "external IP"
	loadBalancerIP destination = "LoadBalancer IP"
	node1Port      destination = "NodePort of node1"
	node2Port      destination = "NodePort of node2"
	unusedPort     destination = "ClusterIP, port 81"
	unusedIP       destination = "ClusterIP 10.96.0.99"
)

// addresses returns the IPv4 and the IPv6 address of a destination.
func (c *cluster) addresses(service string, to destination, protocol string) ([2]netip.AddrPort, error) {
	var found [2]netip.AddrPort
	s := c.manifests.services[service]
	if s == nil {
		return found, fmt.Errorf("no Service %s in %s", service, c.manifests.folder)
	}
	ports := s.Spec.Ports
	i := slices.IndexFunc(ports, func(p corev1.ServicePort) bool { return strings.EqualFold(string(p.Protocol), protocol) })
	if i < 0 {
		return found, fmt.Errorf("service %s has no %s port", service, protocol)
	}
	addrs, port := s.Spec.ClusterIPs, ports[i].Port
	switch to {
	case externalIP:
		addrs = s.Spec.ExternalIPs
	case loadBalancerIP:
		addrs = loadBalancerIPs(s)
	case node1Port:
		addrs, port = []string{c.lab.Node1.IPv4.String(), c.lab.Node1.IPv6.String()}, ports[i].NodePort
	case node2Port:
		addrs, port = []string{c.lab.Node2.IPv4.String(), c.lab.Node2.IPv6.String()}, ports[i].NodePort
	case unusedPort:
		port = 81
	case unusedIP:
		addrs = []string{"10.96.0.99", "fd00:96::99"}
	}
	if len(addrs) != len(found) {
		return found, fmt.Errorf("%s of service %s: got %q, want two addresses", to, service, addrs)
	}
	for family, addr := range addrs {
		found[family] = netip.AddrPortFrom(netip.MustParseAddr(addr), uint16(port)) // the parser validated it
	}
	return found, nil
}

func loadBalancerIPs(s *corev1.Service) []string {
	var addrs []string
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		addrs = append(addrs, ingress.IP)
	}
	return addrs
}
