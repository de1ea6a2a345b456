// Package stage prepares what benchmarks measure: an API server with many
// Services, and namespaces of a lab with one proxy each. All proxies get the
// same configuration file, kubeconfig and objects. The package measures
// nothing.
package stage

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryv1client "k8s.io/client-go/kubernetes/typed/discovery/v1"

	"github.com/nftproxy/nftproxy/test/apiserver/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
)

// Stage is an API server, and a network in which proxies reach it.
type Stage struct {
	Lab     *lab.Lab
	Cluster *cluster.Cluster
	Client  kubernetes.Interface
	Dir     string // of files; removed by Close

	programs Programs
	nodes    int
}

// New returns a stage without Services.
func New(ctx context.Context, programs Programs) (s *Stage, err error) {
	s = &Stage{programs: programs}
	defer func() {
		if err != nil {
			s, err = nil, errors.Join(err, s.Close())
		}
	}()
	if s.Dir, err = os.MkdirTemp("", "nftproxy-bench-"); err != nil {
		return s, err
	}
	if s.Lab, err = lab.New(lab.Config{}); err != nil {
		return s, err
	}
	pod, err := s.Lab.Node2.AddPod("control-plane")
	if err != nil {
		return s, err
	}
	s.Cluster, err = cluster.Start(ctx, cluster.Config{
		Namespace: pod.Namespace, Programs: programs.Folder, Dir: filepath.Join(s.Dir, "cluster"),
		ServiceRanges: lab.ServiceRanges(),
	})
	if err != nil {
		return s, err
	}
	s.Client = s.Cluster.Admin()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: NamespaceName}}
	_, err = s.Client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	return s, err
}

// Close removes the stage.
func (s *Stage) Close() error {
	errs := []error{s.CloseCluster()}
	if s.Lab != nil {
		errs = append(errs, s.Lab.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.Dir))...)
}

// CloseCluster ends the API server. The lab and the tables in it stay.
func (s *Stage) CloseCluster() error {
	if s.Cluster == nil {
		return nil
	}
	return s.Cluster.Close()
}

// Services returns a client for the Services.
func (s *Stage) Services() corev1client.ServiceInterface {
	return s.Client.CoreV1().Services(NamespaceName)
}

// Slices returns a client for the EndpointSlices.
func (s *Stage) Slices() discoveryv1client.EndpointSliceInterface {
	return s.Client.DiscoveryV1().EndpointSlices(NamespaceName)
}

// Create creates a Service with its endpoints.
func (s *Stage) Create(ctx context.Context, service *corev1.Service, slice *discoveryv1.EndpointSlice) error {
	_, errSlice := s.Slices().Create(ctx, slice, metav1.CreateOptions{})
	_, err := s.Services().Create(ctx, service, metav1.CreateOptions{})
	return errors.Join(errSlice, err)
}

// Load creates the Services from first to end-1 with their endpoints.
func (s *Stage) Load(ctx context.Context, first, end int, endpoints func(service int) []netip.Addr) error {
	create := func(ctx context.Context, i int) error { return s.Create(ctx, NewService(i), NewSlice(i, endpoints(i))) }
	if end-first <= 500 {
		return InParallel(ctx, first, end, create)
	}
	// For every Service, the API server of Kubernetes 1.33 or later counts
	// all addresses twice: tens of thousands would take hours. The earlier
	// allocator does not, but it takes IPAddress objects that the later one
	// expects.
	err := s.restartAPIServer(ctx, "--emulated-version=1.33", "--feature-gates=MultiCIDRServiceAllocator=false")
	if err == nil {
		err = InParallel(ctx, first, end, func(ctx context.Context, i int) error {
			created := create(ctx, i)
			_, err := s.Client.NetworkingV1().IPAddresses().Create(ctx, newIPAddress(i), metav1.CreateOptions{})
			return errors.Join(created, err)
		})
	}
	if err != nil {
		return err
	}
	return s.restartAPIServer(ctx)
}

func (s *Stage) restartAPIServer(ctx context.Context, arguments ...string) error {
	if err := s.Cluster.APIServer.Stop(); err != nil {
		return err
	}
	s.Cluster.APIServer.Arguments = arguments
	return s.Cluster.APIServer.Start(ctx)
}

// InParallel calls f for the numbers from first to end-1, up to 64 at a time,
// until one fails.
func InParallel(ctx context.Context, first, end int, f func(context.Context, int) error) error {
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(64)
	for i := first; i < end && working.Err() == nil; i++ {
		group.Go(func() error {
			if err := f(working, i); err != nil {
				return fmt.Errorf("%s: %w", ServiceName(i), err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// AwaitCalm waits until the machine is nearly idle, at most for the limit:
// earlier measurements leave work behind, such as namespaces to be removed. It
// reports whether the machine became idle.
func AwaitCalm(ctx context.Context, limit time.Duration) (calm bool, err error) {
	const little = 0.1 // of all processors
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return false, err
	}
	var busyBefore, allBefore float64
	for end := time.Now().Add(limit); time.Now().Before(end); {
		stat, err := proc.Stat()
		if err != nil {
			return false, err
		}
		c := stat.CPUTotal
		busy := c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
		all := busy + c.Idle + c.Iowait
		if allBefore > 0 && busy-busyBefore < little*(all-allBefore) {
			return true, nil
		}
		busyBefore, allBefore = busy, all
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(500 * time.Millisecond):
		}
	}
	return false, nil
}
