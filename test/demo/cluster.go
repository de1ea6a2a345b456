package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/frontend"
)

// pod is a pod of the cluster. It answers on its port.
type pod struct {
	Name, Node string
	IPv4, IPv6 netip.Addr
	Port       uint16
}

//go:embed pods.yaml
var podsYAML []byte

// cluster is a lab of network namespaces with its pods, a folder of manifests,
// and a kube-proxy process on each node. If demo is killed, the kernel ends the
// processes, and the next cluster of the same name removes the rest.
type cluster struct {
	name, kubeProxy string
	fail            context.CancelCauseFunc // is called when a kube-proxy ends unexpectedly

	lab      *lab.Lab
	pods     []pod
	hosts    map[string]*lab.Namespace
	services map[string]*corev1.Service // by namespace/name
	proxies  map[string]*lab.Process    // by node
}

// open creates the cluster and waits until both nodes serve.
func (c *cluster) open(ctx context.Context) (err error) {
	if c.lab, err = lab.New(c.name); err != nil {
		return err
	}
	// The lab owns the name, so the folder is left from a demo that was killed.
	if err := os.RemoveAll(c.folder()); err != nil {
		return err
	}
	if err := c.writeManifests(); err != nil {
		return err
	}
	if err := yaml.UnmarshalStrict(podsYAML, &c.pods); err != nil {
		return fmt.Errorf("pods: %w", err)
	}
	c.hosts, c.proxies = map[string]*lab.Namespace{"client": c.lab.Client}, map[string]*lab.Process{}
	for _, node := range c.lab.Nodes() {
		c.hosts[node.Name] = node.Namespace
		if err := c.addPods(ctx, node); err != nil {
			return err
		}
		if err := c.startProxy(ctx, node); err != nil {
			return err
		}
	}
	return c.awaitServed(ctx)
}

// close ends the processes and removes the folder and the namespaces.
func (c *cluster) close() error {
	if c.lab == nil {
		return nil
	}
	for _, proxy := range c.proxies {
		proxy.End(syscall.SIGKILL)
	}
	return errors.Join(os.RemoveAll(c.folder()), c.lab.Close())
}

// folder returns the folder of manifests and logs. Only root can write to /run.
func (c *cluster) folder() string { return "/run/nftproxy-" + c.name }

func (c *cluster) manifests() string { return filepath.Join(c.folder(), "manifests") }

// addPods creates the pods of a node and starts their servers.
func (c *cluster) addPods(ctx context.Context, node *lab.Node) error {
	for _, p := range c.pods {
		if p.Node != node.Name || ctx.Err() != nil {
			continue
		}
		created, err := node.AddPodWith(lab.PodConfig{Name: p.Name, IPv4: p.IPv4, IPv6: p.IPv6})
		if err != nil {
			return err
		}
		c.hosts[p.Name] = created.Namespace
		if err := created.Serve(p.Port); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// nameOf returns the name of the host with the address, or the address itself.
func (c *cluster) nameOf(addr netip.Addr) string {
	for name, host := range c.hosts {
		if addr == host.IPv4 || addr == host.IPv6 {
			return name
		}
	}
	return addr.String()
}

// proxyArgs returns the arguments of kube-proxy on a node.
func (c *cluster) proxyArgs(node string) []string {
	ranges := lab.PodRanges()
	return []string{
		"--manifests", c.manifests(), "--hostname-override", node,
		"--cluster-cidr", ranges[0].String() + "," + ranges[1].String(),
	}
}

// startProxy starts a kube-proxy. Ctrl-C in the terminal does not end it.
func (c *cluster) startProxy(ctx context.Context, node *lab.Node) error {
	proxy, err := node.StartProcess(ctx, lab.ProcessConfig{
		Program: c.kubeProxy, Args: c.proxyArgs(node.Name), Log: filepath.Join(c.folder(), node.Name+".log"),
		Ended: func(err error) { c.fail(fmt.Errorf("%s: %w", node.Name, err)) },
	})
	if err == nil {
		c.proxies[node.Name] = proxy
	}
	return err
}

// effectTimeout limits the wait for the effect of a change.
const effectTimeout = time.Minute

// awaitServed waits until both nodes serve both families.
func (c *cluster) awaitServed(ctx context.Context) error {
	late := fmt.Errorf("shop/web is not served after %v", effectTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, effectTimeout, late)
	defer cancel()
	for _, node := range c.lab.Nodes() {
		for _, to := range c.addresses("shop/web", "ClusterIP", "tcp") {
			options := lab.ProbeOptions{Timeout: 200 * time.Millisecond}
			for lab.Probe(ctx, node.Namespace, "tcp", to, options).Outcome != lab.Answered {
				if ctx.Err() != nil {
					return fmt.Errorf("%w; the log on %s:\n%s", context.Cause(ctx), node.Name,
						c.proxies[node.Name].EndOfLog())
				}
				time.Sleep(5 * time.Millisecond)
			}
		}
	}
	return nil
}

//go:embed manifests/*.yaml
var embedded embed.FS

// writeManifests writes the manifests to their folder and reads the Services.
func (c *cluster) writeManifests() error {
	c.services = map[string]*corev1.Service{}
	for _, name := range []string{"kube-system/dns", "shop/cart", "shop/checkout", "shop/payments", "shop/web"} {
		text, err := embedded.ReadFile("manifests/" + strings.ReplaceAll(name, "/", "-") + ".yaml")
		if err != nil {
			return err
		}
		c.services[name] = new(corev1.Service)
		if err := yaml.UnmarshalStrict(text, c.services[name]); err != nil {
			return fmt.Errorf("service %s: %w", name, err)
		}
	}
	return errors.Join(os.CopyFS(c.folder(), embedded), c.setEndpoints("shop/web", "web-1", "web-2", "web-3"))
}

// setEndpoints removes the lines of endpoints that are other pods. It renames a
// complete file, so that kube-proxy never reads a part of it.
func (c *cluster) setEndpoints(service string, pods ...string) error {
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
	draft := filepath.Join(c.manifests(), ".draft") // kube-proxy ignores hidden files
	if err := os.WriteFile(draft, kept, 0o644); err != nil {
		return err
	}
	return os.Rename(draft, filepath.Join(c.manifests(), file))
}

// addresses returns the IPv4 and the IPv6 address of a destination in tour.txt.
// They are zero if the manifests do not contain them.
func (c *cluster) addresses(service, destination, protocol string) (found [2]netip.AddrPort) {
	s := c.services[service].DeepCopy()
	kind, node, _ := strings.Cut(destination, " of ")
	switch destination {
	case "ClusterIP, port 81":
		kind, s.Spec.Ports[0].Port = "ClusterIP", 81
	case "ClusterIP 10.96.0.99":
		kind, s.Spec.ClusterIPs = "ClusterIP", []string{"10.96.0.99", "fd00:96::99"}
	}
	var nodes []netip.Addr
	if host := c.hosts[node]; host != nil {
		nodes = host.Addrs()
	}
	for _, f := range frontend.Of(s, nodes...) {
		switch {
		case string(f.Kind) != kind || f.Network != protocol:
		case f.To.Addr().Is4():
			found[0] = f.To
		default:
			found[1] = f.To
		}
	}
	return found
}
