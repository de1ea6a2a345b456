package cluster

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// firstPort is that of the API server that nodes know.
const firstPort = 6443

// Files of the cluster's folder.
const (
	caFile          = "ca.crt"
	servingCertFile = "apiserver.crt"
	servingKeyFile  = "apiserver.key"
	signingKeyFile  = "service-accounts.key"
	auditPolicyFile = "audit-policy.yaml"
)

// APIServer is a kube-apiserver.
type APIServer struct {
	// Port is the one that it listens on, on all addresses of the namespace.
	Port uint16
	// Client is an administrator's client of this API server. It is not rate limited.
	Client kubernetes.Interface
	// Arguments are further ones of the program, from Config. What they are changed to takes effect with Start.
	Arguments []string

	cluster *Cluster
	mu      sync.Mutex
	process *process // nil while it does not run; guarded by mu
}

// StartAPIServer starts an API server and waits until it is ready. It shares etcd and all keys with the others: what is changed
// through one is seen by all.
func (c *Cluster) StartAPIServer(ctx context.Context, port uint16) (*APIServer, error) {
	s := &APIServer{Port: port, Arguments: c.config.Arguments, cluster: c}
	config, err := c.adminConfig(port)
	if err != nil {
		return nil, err
	}
	if s.Client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.servers = append(c.servers, s)
	c.mu.Unlock()
	return s, s.Start(ctx)
}

// Start starts the API server after Stop or Kill, and waits until it is ready.
func (s *APIServer) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		return errors.New("the API server runs")
	}
	process, err := s.cluster.start(s.name(), "kube-apiserver", s.arguments()...)
	if err != nil {
		return err
	}
	s.process = process
	return s.awaitReady(ctx, process)
}

// Stop ends the API server as a service manager does. One that does not run is no error.
func (s *APIServer) Stop() error { return s.end(syscall.SIGTERM) }

// Kill ends the API server without notice. One that does not run is no error.
func (s *APIServer) Kill() error { return s.end(syscall.SIGKILL) }

func (s *APIServer) end(signal syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	select {
	case <-s.process.ended:
		return s.process.failure() // it was to run until now
	default:
	}
	s.process.end(signal)
	s.process = nil
	return nil
}

func (s *APIServer) name() string { return fmt.Sprintf("kube-apiserver-%d", s.Port) }

// awaitReady waits until the API server serves and has made the roles that Kubernetes itself has.
func (s *APIServer) awaitReady(ctx context.Context, process *process) error {
	const limit = 2 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := s.Client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		if err == nil {
			return nil
		}
		select {
		case <-process.ended:
			return process.failure()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", s.name(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *APIServer) arguments() []string {
	c := s.cluster
	var ranges []string
	for _, prefix := range c.config.ServiceRanges {
		ranges = append(ranges, prefix.String())
	}
	return append([]string{
		"--etcd-servers=" + etcdURL,
		"--etcd-compaction-interval=0", // Compact says when
		fmt.Sprintf("--secure-port=%d", s.Port),
		"--bind-address=::",
		"--advertise-address=" + c.config.Namespace.IPv4.String(),
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + strings.Join(ranges, ","),
		"--authorization-mode=RBAC",
		"--anonymous-auth=false",
		"--client-ca-file=" + c.path(caFile),
		"--tls-cert-file=" + c.path(servingCertFile),
		"--tls-private-key-file=" + c.path(servingKeyFile),
		"--service-account-issuer=" + issuer,
		"--service-account-key-file=" + c.path(signingKeyFile),
		"--service-account-signing-key-file=" + c.path(signingKeyFile),
		"--audit-policy-file=" + c.path(auditPolicyFile),
		"--audit-log-path=" + c.path(s.auditLog()),
		"--allow-privileged=true",
	}, s.Arguments...)
}

const issuer = "https://kubernetes.default.svc.cluster.local"

// issueServing makes the certificate of all API servers of the cluster.
func (c *Cluster) issueServing() (keyPair, error) {
	addrs := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}
	addrs = append(addrs, c.config.Namespace.Addrs()...)
	for _, prefix := range c.config.ServiceRanges {
		addrs = append(addrs, prefix.Masked().Addr().Next()) // default/kubernetes has the first one
	}
	names := []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	return c.authority.issue(pkix.Name{CommonName: "kube-apiserver"}, names, slices.Clip(addrs))
}

// adminConfig is the configuration of a client that may do everything.
func (c *Cluster) adminConfig(port uint16) (*rest.Config, error) {
	pair, err := c.issueAdmin()
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: c.url(c.config.Namespace.IPv4, port),
		Dial: c.config.Namespace.DialContext,
		QPS:  -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: c.authority.pem, CertData: pair.certificate, KeyData: pair.key,
		},
	}, nil
}

func (c *Cluster) issueAdmin() (keyPair, error) {
	return c.authority.issue(pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}, nil, nil)
}

// url is that of an API server at one of the namespace's addresses.
func (c *Cluster) url(addr netip.Addr, port uint16) string {
	return "https://" + netip.AddrPortFrom(addr, port).String()
}
