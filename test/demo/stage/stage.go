package stage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"sync"

	"github.com/nftproxy/nftproxy/test/demo/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
)

// Config says what is run. All fields are needed.
type Config struct {
	// Name begins the names of the namespaces ("demo" in "demo.node1") and is in that of the folder. Stages of different
	// names run side by side.
	Name string
	// KubeProxy is the program that runs on the nodes.
	KubeProxy string
	// Manifests are the cluster's.
	Manifests fs.FS
}

// Toolbox is a pod that answers for no Service: clients inside the cluster are played by it.
func Toolbox() cluster.Endpoint {
	return cluster.Endpoint{Pod: "toolbox", Node: "node2", Dual: cluster.Dual{
		IPv4: netip.MustParseAddr("10.244.2.99"), IPv6: netip.MustParseAddr("fd00:244:2::99"),
	}}
}

// Stage is the running cluster. Its methods may be called concurrently.
type Stage struct {
	Lab *lab.Lab
	// Services are those of the manifests, as they were at the beginning.
	Services []*cluster.Service

	config  Config
	proxies map[string]*proxy // by node

	mu   sync.Mutex
	pods map[string]*lab.Pod
}

// Open builds the cluster and returns when the Services are served on all nodes. Nothing is left behind on an error.
func Open(ctx context.Context, config Config) (*Stage, error) {
	services, err := cluster.Read(config.Manifests)
	if err != nil {
		return nil, err
	}
	network, err := lab.New(lab.Config{Prefix: config.Name, Named: true})
	if err != nil {
		return nil, err
	}
	s := &Stage{
		Lab: network, Services: services, config: config,
		proxies: map[string]*proxy{}, pods: map[string]*lab.Pod{},
	}
	if err := s.build(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stage) build(ctx context.Context) error {
	if err := s.Lab.NameError(); err != nil {
		return err
	}
	// The lab's name is ours by now: what is in the folder of that name is left from a run that was killed.
	if err := s.makeFolder(); err != nil {
		return err
	}
	if err := s.addPods(ctx); err != nil {
		return err
	}
	for _, node := range s.Lab.Nodes() {
		if err := s.StartProxy(ctx, node.Name); err != nil {
			return err
		}
	}
	return s.awaitServed(ctx)
}

// Close ends the processes and removes the folder and the namespaces.
func (s *Stage) Close() error {
	var (
		errs = make(chan error, len(s.proxies))
		all  []error
	)
	for _, p := range s.proxies {
		go func() { errs <- p.stop() }()
	}
	for range s.proxies {
		all = append(all, <-errs)
	}
	// The folder goes before the lab, and with it the claim on the name.
	return errors.Join(append(all, s.removeFolder(), s.Lab.Close())...)
}

// Service returns a Service of the manifests by namespace/name.
func (s *Stage) Service(name string) (*cluster.Service, error) {
	for _, service := range s.Services {
		if service.String() == name {
			return service, nil
		}
	}
	return nil, fmt.Errorf("the manifests have no service %s", name)
}

// Host returns the namespace of the client, a node or a pod.
func (s *Stage) Host(name string) (*lab.Namespace, error) {
	for _, ns := range s.hosts() {
		if ns.Name == name {
			return ns, nil
		}
	}
	return nil, fmt.Errorf("there is no %s in the lab", name)
}

// HostOf returns the name of the client, node or pod that has the address, or the address itself.
func (s *Stage) HostOf(addr netip.Addr) string {
	for _, ns := range s.hosts() {
		if addr == ns.IPv4 || addr == ns.IPv6 {
			return ns.Name
		}
	}
	return addr.String()
}

func (s *Stage) hosts() []*lab.Namespace {
	hosts := []*lab.Namespace{s.Lab.Client, s.Lab.Node1.Namespace, s.Lab.Node2.Namespace}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pod := range s.pods {
		hosts = append(hosts, pod.Namespace)
	}
	return hosts
}

// node returns a node by name.
func (s *Stage) node(name string) (*lab.Node, error) {
	for _, node := range s.Lab.Nodes() {
		if node.Name == name {
			return node, nil
		}
	}
	return nil, fmt.Errorf("there is no node %s in the lab", name)
}

// Folder holds the manifests and the logs.
func (s *Stage) Folder() string { return folderOf(s.config.Name) }

// ManifestFolder is what kube-proxy reads.
func (s *Stage) ManifestFolder() string { return filepath.Join(s.Folder(), "manifests") }

// CommandLine is how a person runs a command in the namespace of a host.
func (s *Stage) CommandLine(host, command string) string {
	return fmt.Sprintf("ip netns exec %s.%s %s", s.config.Name, host, command)
}
