package main

import (
	"bytes"
	"embed"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

//go:embed manifests/*.yaml
var embedded embed.FS

// manifests is a folder of manifests and its Services.
type manifests struct {
	folder   string
	services map[string]*corev1.Service // by namespace/name
}

// newManifests writes the embedded manifests to parent/manifests and reads
// their Services.
func newManifests(parent string) (*manifests, error) {
	m := &manifests{folder: filepath.Join(parent, "manifests"), services: map[string]*corev1.Service{}}
	for _, name := range []string{"kube-system/dns", "shop/cart", "shop/checkout", "shop/payments", "shop/web"} {
		text, err := embedded.ReadFile("manifests/" + strings.ReplaceAll(name, "/", "-") + ".yaml")
		if err != nil {
			return nil, err
		}
		m.services[name] = new(corev1.Service)
		if err := yaml.UnmarshalStrict(text, m.services[name]); err != nil {
			return nil, fmt.Errorf("service %s: %w", name, err)
		}
	}
	if err := os.CopyFS(parent, embedded); err != nil {
		return nil, err
	}
	return m, m.setEndpoints("shop/web", "web-1", "web-2", "web-3")
}

// setEndpoints removes the lines of endpoints that are other pods. It renames a
// complete file, so that kube-proxy never reads a part of it.
func (m *manifests) setEndpoints(service string, pods ...string) error {
	file := strings.ReplaceAll(service, "/", "-") + "-endpoints.yaml"
	data, err := embedded.ReadFile("manifests/" + file)
	if err != nil {
		return err
	}
	var kept []byte
	for line := range bytes.Lines(data) {
		_, target, isEndpoint := bytes.Cut(line, []byte("kind: Pod, name: "))
		if name, _, _ := bytes.Cut(target, []byte("}")); !isEndpoint || slices.Contains(pods, string(name)) {
			kept = append(kept, line...)
		}
	}
	draft := filepath.Join(m.folder, ".draft") // kube-proxy ignores hidden files
	if err := os.WriteFile(draft, kept, 0o644); err != nil {
		return err
	}
	return os.Rename(draft, filepath.Join(m.folder, file))
}

// addresses returns the IPv4 and the IPv6 address of a destination in tour.txt.
// They are zero if the manifests do not contain them.
func (c *cluster) addresses(service, destination, protocol string) (found [2]netip.AddrPort) {
	spec := c.manifests.services[service].Spec
	for _, p := range spec.Ports {
		addrs, port := spec.ClusterIPs, p.Port
		switch destination {
		case "external IP":
			addrs = spec.ExternalIPs
		case "LoadBalancer IP":
			addrs = loadBalancerIPs(c.manifests.services[service])
		case "NodePort of node1", "NodePort of node2":
			node := c.hosts[strings.TrimPrefix(destination, "NodePort of ")]
			addrs, port = []string{node.IPv4.String(), node.IPv6.String()}, p.NodePort
		case "ClusterIP, port 81":
			port = 81
		case "ClusterIP 10.96.0.99":
			addrs = []string{"10.96.0.99", "fd00:96::99"}
		}
		for family, addr := range addrs[:min(len(addrs), len(found))] {
			if strings.EqualFold(string(p.Protocol), protocol) {
				found[family] = netip.AddrPortFrom(netip.MustParseAddr(addr), uint16(port)) // the parser validated it
			}
		}
	}
	return found
}

func loadBalancerIPs(s *corev1.Service) (addrs []string) {
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		addrs = append(addrs, ingress.IP)
	}
	return addrs
}
