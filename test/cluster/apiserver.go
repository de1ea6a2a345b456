package cluster

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/nftproxy/nftproxy/test/lab"
)

// APIServer is a kube-apiserver.
type APIServer struct {
	// Port is the port on all addresses of the namespace.
	Port uint16
	// Client is an administrator's client of this API server without a rate
	// limit.
	Client kubernetes.Interface

	cluster *Cluster
	mu      sync.Mutex
	process *lab.Process // nil while it does not run; guarded by mu
}

// StartAPIServer starts an API server and waits until it is ready. All API
// servers share etcd and all keys.
func (c *Cluster) StartAPIServer(ctx context.Context, port uint16) (*APIServer, error) {
	client, err := c.connect(c.config.Namespace, port)
	if err != nil {
		return nil, err
	}
	s := &APIServer{Port: port, Client: client, cluster: c}
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
		return errors.New("the API server runs already")
	}
	var err error
	if s.process, err = s.cluster.start(s.name(), "kube-apiserver", s.arguments()...); err != nil {
		return err
	}
	return s.awaitReady(ctx)
}

// Stop ends the API server with SIGTERM. It returns nil if none runs.
func (s *APIServer) Stop() error { return s.end(syscall.SIGTERM) }

// Kill ends the API server with SIGKILL. It returns nil if none runs.
func (s *APIServer) Kill() error { return s.end(syscall.SIGKILL) }

// PID returns the process ID, and 0 while the API server does not run.
func (s *APIServer) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return 0
	}
	return s.process.PID
}

func (s *APIServer) end(signal syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	err := context.Cause(s.process.Running) // if it ended by itself
	s.process.End(signal)
	s.process = nil
	return err
}

func (s *APIServer) name() string { return fmt.Sprintf("kube-apiserver-%d", s.Port) }

// awaitReady waits until the API server serves and has created the roles of
// Kubernetes.
func (s *APIServer) awaitReady(ctx context.Context) error {
	const period, limit = 50 * time.Millisecond, 5 * time.Minute
	var last error
	err := wait.PollUntilContextTimeout(ctx, period, limit, true, func(ctx context.Context) (bool, error) {
		last = s.Client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		return last == nil, context.Cause(s.process.Running)
	})
	if err != nil {
		return fmt.Errorf("%s is not ready: %w", s.name(), errors.Join(err, last))
	}
	return nil
}

func (s *APIServer) arguments() []string {
	c := s.cluster
	ranges := strings.Trim(strings.ReplaceAll(fmt.Sprint(c.config.ServiceRanges), " ", ","), "[]")
	return []string{
		"--etcd-servers=" + etcdURL,
		"--etcd-compaction-interval=0", // Compact does it
		fmt.Sprintf("--secure-port=%d", s.Port),
		"--bind-address=::",
		"--advertise-address=" + c.config.Namespace.IPv4.String(),
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + ranges,
		"--authorization-mode=RBAC",
		"--anonymous-auth=false",
		"--kubelet-preferred-address-types=InternalIP", // for kubectl exec
		"--token-auth-file=" + c.path(tokensFile),
		"--tls-cert-file=" + c.path(servingCertFile),
		"--tls-private-key-file=" + c.path(servingKeyFile),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.path(signingKeyFile),
		"--service-account-signing-key-file=" + c.path(signingKeyFile),
		"--audit-policy-file=" + c.path(auditPolicyFile),
		"--audit-log-path=" + c.path(s.auditLog()),
		"--allow-privileged=true",
	}
}

//go:embed audit-policy.yaml
var auditPolicy []byte

// Request is a request of a service account.
type Request struct {
	Verb   string `json:"verb"`
	URI    string `json:"requestURI"`
	Object struct {
		Resource string `json:"resource"`
	} `json:"objectRef"`
	// Annotations hold the authorizer's decision, in
	// authorization.k8s.io/decision.
	Annotations map[string]string `json:"annotations"`
	Received    time.Time         `json:"requestReceivedTimestamp"`
}

// Allowed reports whether the authorizer allowed the request.
func (r Request) Allowed() bool { return r.Annotations["authorization.k8s.io/decision"] == "allow" }

func (s *APIServer) auditLog() string { return s.name() + "-audit.log" }

// Requests returns the requests of service accounts since Clear, or since the
// API server was first started, in the order of the responses.
func (s *APIServer) Requests() ([]Request, error) {
	file, err := os.Open(s.cluster.path(s.auditLog()))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	s.cluster.mu.Lock()
	since := s.cluster.cleared
	s.cluster.mu.Unlock()
	var out []Request
	for lines := json.NewDecoder(file); ; {
		var r Request
		if err := lines.Decode(&r); err != nil { // the API server may not have completed the last line
			return out, nil
		}
		if r.Received.After(since) {
			out = append(out, r)
		}
	}
}
