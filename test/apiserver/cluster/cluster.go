package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"k8s.io/client-go/kubernetes"

	"github.com/nftproxy/nftproxy/test/lab"
)

// Config says where a cluster runs. All fields are needed.
type Config struct {
	// Namespace holds etcd and the API servers, which listen on its addresses.
	Namespace *lab.Namespace
	// Programs is the folder with the programs etcd, kube-apiserver and kubectl.
	Programs string
	// Dir is a folder of the cluster's own, for data, keys and logs. It is made.
	Dir string
	// ServiceRanges are the ranges of ClusterIPs, one a family, the primary one first.
	ServiceRanges []netip.Prefix
	// Arguments are further ones of API servers; nil for none.
	Arguments []string
}

// Cluster is a control plane that runs. Its methods may be called concurrently, but for Close.
type Cluster struct {
	// APIServer is the one that nodes know.
	APIServer *APIServer

	config     Config
	etcd       *process
	authority  *authority
	kubeconfig string // file of the administrator

	mu      sync.Mutex
	servers []*APIServer // guarded by mu
}

// Start starts etcd and an API server and waits until that is ready. It takes a few seconds. The error tells what a program said
// last when it ended; nothing runs then.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	if config.Namespace == nil || config.Programs == "" || config.Dir == "" || len(config.ServiceRanges) == 0 {
		return nil, fmt.Errorf("cluster: a field of the configuration is missing: %+v", config)
	}
	c := &Cluster{config: config}
	err := c.prepare()
	if err == nil {
		err = c.startEtcd()
	}
	if err == nil {
		c.APIServer, err = c.StartAPIServer(ctx, firstPort)
	}
	if err == nil {
		c.kubeconfig = filepath.Join(config.Dir, "admin.kubeconfig")
		err = c.writeAdminKubeconfig()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cluster: %w", err), c.Close())
	}
	return c, nil
}

// Admin is an administrator's client of APIServer. It is not rate limited.
func (c *Cluster) Admin() kubernetes.Interface { return c.APIServer.Client }

// Close ends the programs. Their files stay, in Config.Dir.
func (c *Cluster) Close() error {
	c.mu.Lock()
	servers := slices.Clone(c.servers)
	c.mu.Unlock()
	var errs []error
	for _, server := range servers {
		errs = append(errs, server.Kill())
	}
	if c.etcd != nil {
		c.etcd.end(syscall.SIGKILL)
	}
	return errors.Join(errs...)
}

// path is a file of the cluster's folder.
func (c *Cluster) path(name string) string { return filepath.Join(c.config.Dir, name) }

// prepare writes the files that the programs read.
func (c *Cluster) prepare() error {
	if err := os.MkdirAll(c.config.Dir, 0o700); err != nil {
		return err
	}
	var err error
	if c.authority, err = newAuthority("cluster"); err != nil {
		return err
	}
	signing, err := newSigningKey()
	if err != nil {
		return err
	}
	serving, err := c.issueServing()
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		caFile:          c.authority.pem,
		servingCertFile: serving.certificate,
		servingKeyFile:  serving.key,
		signingKeyFile:  signing,
		auditPolicyFile: []byte(auditPolicy),
	} {
		if err := os.WriteFile(c.path(name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}
