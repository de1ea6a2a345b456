// Package cluster runs a Kubernetes API server for tests and benchmarks: real
// etcd and kube-apiserver programs in a network namespace of package lab.
//
//	          namespace (usually a pod of the lab)
//	┌───────────────────────────────────────────────┐
//	│ etcd 127.0.0.1:2379 ◄── kube-apiserver  :6443 │ ◄── nodes, through the lab
//	│                     ◄── another one     :6444 │ ◄── Client, kubectl
//	└───────────────────────────────────────────────┘
//
// API servers issue tokens of service accounts and authorize by RBAC alone.
// There are no controllers: the caller creates EndpointSlices, Nodes and
// service accounts. The Service default/kubernetes has no endpoints, so that
// starting or stopping an API server changes no object.
//
// The package owns the processes, their files and their clients. It does not
// configure or observe service proxies.
package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/nftproxy/nftproxy/test/lab"
)

// firstPort is the port of Cluster.APIServer.
const firstPort = 6443

// Files in the folder of the cluster.
const (
	servingCertFile = "apiserver.crt"
	servingKeyFile  = "apiserver.key"
	signingKeyFile  = "service-accounts.key"
	tokensFile      = "tokens.csv"
	auditPolicyFile = "audit-policy.yaml"
)

// Config describes where a cluster runs. All fields are required.
type Config struct {
	// Namespace holds etcd and the API servers, which listen on its addresses.
	Namespace *lab.Namespace
	// Programs is the folder of the programs etcd, kube-apiserver and kubectl.
	Programs string
	// Dir is a folder for data, keys and logs. Start creates it.
	Dir string
	// ServiceRanges are the ranges of ClusterIPs, one per family, the primary
	// family first.
	ServiceRanges []netip.Prefix
}

// Cluster is a running control plane. Its methods may be called concurrently,
// except Close.
type Cluster struct {
	// APIServer is the API server that nodes use.
	APIServer *APIServer

	config     Config
	etcd       *lab.Process
	ca         []byte // PEM
	adminToken string
	kubeconfig string // file of the administrator

	mu      sync.Mutex
	servers []*APIServer // guarded by mu
	cleared time.Time    // when Clear was last called; guarded by mu
}

// Start starts etcd and an API server, and waits until the API server is ready.
// It takes a few seconds. If a program ended, the error contains the end of its
// log. After an error no program runs.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	if config.Namespace == nil || config.Programs == "" || config.Dir == "" || len(config.ServiceRanges) == 0 {
		return nil, fmt.Errorf("cluster: a field of the configuration is missing: %+v", config)
	}
	c := &Cluster{
		config: config, adminToken: rand.Text(), kubeconfig: filepath.Join(config.Dir, "admin.kubeconfig"),
	}
	err := c.prepare()
	if err == nil {
		err = c.startEtcd()
	}
	if err == nil {
		c.APIServer, err = c.StartAPIServer(ctx, firstPort)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cluster: %w", err), c.Close())
	}
	return c, nil
}

// Admin returns an administrator's client of APIServer without a rate limit.
func (c *Cluster) Admin() kubernetes.Interface { return c.APIServer.Client }

// Alone reports whether APIServer runs, and no other API server.
func (c *Cluster) Alone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, server := range c.servers {
		if (server == c.APIServer) != (server.PID() != 0) {
			return false
		}
	}
	return true
}

// Close kills the programs. Their files stay in Config.Dir.
func (c *Cluster) Close() error {
	c.mu.Lock()
	servers := slices.Clone(c.servers)
	c.mu.Unlock()
	var errs []error
	for _, server := range servers {
		errs = append(errs, server.Kill())
	}
	if c.etcd != nil {
		c.etcd.End(syscall.SIGKILL)
	}
	return errors.Join(errs...)
}

// path returns a file in the folder of the cluster.
func (c *Cluster) path(name string) string { return filepath.Join(c.config.Dir, name) }

// start starts a program of the control plane, which logs to NAME.log.
func (c *Cluster) start(name, program string, args ...string) (*lab.Process, error) {
	return c.config.Namespace.StartProcess(context.Background(), lab.ProcessConfig{
		Log: c.path(name + ".log"), Program: filepath.Join(c.config.Programs, program), Args: args,
	})
}

// prepare writes the files that the programs read.
func (c *Cluster) prepare() error {
	if err := os.MkdirAll(c.config.Dir, 0o700); err != nil {
		return err
	}
	// All API servers of the cluster share one certificate.
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, addr := range c.config.Namespace.Addrs() {
		ips = append(ips, addr.AsSlice())
	}
	for _, prefix := range c.config.ServiceRanges {
		ips = append(ips, prefix.Masked().Addr().Next().AsSlice()) // of default/kubernetes
	}
	names := []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	serving, servingKey, err := certificate(ips, names)
	if err != nil {
		return err
	}
	c.ca = serving // contains the certificate of the authority, too
	signingKey, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		servingCertFile: serving,
		servingKeyFile:  servingKey,
		signingKeyFile:  signingKey,
		tokensFile:      []byte(c.adminToken + ",admin,admin,system:masters\n"),
		auditPolicyFile: auditPolicy,
	} {
		if err := os.WriteFile(c.path(name), content, 0o600); err != nil {
			return err
		}
	}
	return c.WriteKubeconfig(c.kubeconfig, c.adminToken)
}

var certificates sync.Map // of API servers, by their addresses: to create one takes half a second

func certificate(ips []net.IP, names []string) (certificate, key []byte, err error) {
	found, _ := certificates.LoadOrStore(fmt.Sprint(ips, names), sync.OnceValues(func() ([2][]byte, error) {
		certificate, key, err := cert.GenerateSelfSignedCertKey("kube-apiserver", ips, names)
		return [2][]byte{certificate, key}, err
	}))
	pair, err := found.(func() ([2][]byte, error))()
	return pair[0], pair[1], err
}
