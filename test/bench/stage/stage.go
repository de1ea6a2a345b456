// Package stage prepares what benchmarks measure: an API server with many
// Services, and namespaces of a lab with one proxy each. All proxies get the
// same configuration file, kubeconfig and objects. The package measures
// nothing.
package stage

import (
	"context"
	"encoding/binary"
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
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryv1client "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/test/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/random"
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
	if s.Lab, err = lab.New(""); err != nil {
		return s, err
	}
	pod, err := s.Lab.Node2.AddPod("control-plane")
	if err != nil {
		return s, err
	}
	s.Cluster, err = cluster.Start(ctx, cluster.Config{
		Namespace: pod.Namespace, Programs: programs.Folder, Dir: filepath.Join(s.Dir, "cluster"),
		ServiceRanges: []netip.Prefix{serviceRange, lab.ServiceRanges()[1]},
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
	if err := s.AllocateFast(ctx); err != nil {
		return err
	}
	err := InParallel(ctx, first, end, func(ctx context.Context, i int) error {
		created := create(ctx, i)
		_, err := s.Client.NetworkingV1().IPAddresses().Create(ctx, newIPAddress(i), metav1.CreateOptions{})
		return errors.Join(created, err)
	})
	if err != nil {
		return err
	}
	return s.RestartAPIServer(ctx)
}

// AllocateFast restarts the API server with an earlier allocator of ClusterIPs.
// For every Service, the API server of Kubernetes 1.33 or later counts all
// addresses twice: tens of thousands would take hours. The earlier allocator
// does not, and does not create the IPAddress objects that the later one
// expects.
func (s *Stage) AllocateFast(ctx context.Context) error {
	return s.RestartAPIServer(ctx, "--emulated-version=1.33", "--feature-gates=MultiCIDRServiceAllocator=false")
}

// RestartAPIServer restarts the API server, with further arguments.
func (s *Stage) RestartAPIServer(ctx context.Context, arguments ...string) error {
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
	var idleBefore float64 // seconds of all processors
	before := time.Now()
	for end := before.Add(limit); time.Now().Before(end); {
		stat, err := proc.Stat()
		if err != nil {
			return false, err
		}
		idle, now := stat.CPUTotal.Idle+stat.CPUTotal.Iowait, time.Now()
		all := now.Sub(before).Seconds() * float64(len(stat.CPU))
		if idleBefore > 0 && idle-idleBefore > (1-little)*all {
			return true, nil
		}
		idleBefore, before = idle, now
		if !lab.Sleep(ctx, 500*time.Millisecond) {
			return false, context.Cause(ctx)
		}
	}
	return false, nil
}

// Names, numbers and ports of the objects. A Service is a number from 0; its
// name and addresses follow from it.
const (
	NamespaceName = "bench"
	MaxServices   = 100_000 // benchmarks use larger numbers for a few others
	ServicePort   = 80
	TargetPort    = 8080
)

// ClusterCIDR contains all endpoints.
const ClusterCIDR = "10.128.0.0/9"

var (
	endpointRange = netip.MustParsePrefix(ClusterCIDR)
	serviceRange  = netip.MustParsePrefix("10.96.0.0/12") // the largest that an API server accepts
)

// Endpoints returns the endpoints of a Service that has that many.
func Endpoints(service, endpoints int) []netip.Addr {
	addrs := make([]netip.Addr, endpoints)
	for i := range addrs {
		addrs[i] = lab.AddrIn(endpointRange, 1+service*endpoints+i)
	}
	return addrs
}

// Frontend returns the ClusterIP and port of a Service.
func Frontend(service int) netip.AddrPort {
	return netip.AddrPortFrom(lab.AddrIn(serviceRange, 256+service), ServicePort)
}

// Frontends returns the frontends of the Services from 0.
func Frontends(services int) []netip.AddrPort {
	all := make([]netip.AddrPort, services)
	for i := range all {
		all[i] = Frontend(i)
	}
	return all
}

// ServiceName returns the name of a Service and of its EndpointSlice.
func ServiceName(service int) string { return fmt.Sprintf("service-%05d", service) }

// NewService returns a Service.
func NewService(service int) *corev1.Service {
	name := ServiceName(service)
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: NamespaceName, Labels: appLabel(name)}}
	s.Spec.ClusterIP, s.Spec.Selector = Frontend(service).Addr().String(), appLabel(name)
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: ServicePort, TargetPort: intstr.FromInt32(TargetPort)}}
	return s
}

func appLabel(name string) map[string]string { return map[string]string{"app": name} }

// newIPAddress returns the object by which the API server allocates a
// ClusterIP.
func newIPAddress(service int) *networkingv1.IPAddress {
	ip := &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: Frontend(service).Addr().String()}}
	ip.Labels = map[string]string{
		networkingv1.LabelIPAddressFamily: string(corev1.IPv4Protocol),
		networkingv1.LabelManagedBy:       "ipallocator.k8s.io",
	}
	ip.Spec.ParentRef = &networkingv1.ParentReference{
		Resource: "services", Namespace: NamespaceName, Name: ServiceName(service),
	}
	return ip
}

// NewSlice returns the EndpointSlice of a Service as the controller makes it.
func NewSlice(service int, addrs []netip.Addr) *discoveryv1.EndpointSlice {
	name := ServiceName(service)
	slice := random.NewSlice(name, name, 0)
	slice.Namespace = NamespaceName
	slice.Labels["app"], slice.Labels[discoveryv1.LabelManagedBy] = name, "endpointslice-controller.k8s.io"
	changed := time.Now().UTC().Format(time.RFC3339Nano)
	slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: changed}
	slice.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Service", Name: name, UID: uid(0, service),
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}}
	slice.Ports = []discoveryv1.EndpointPort{{
		Name: ptr.To("http"), Port: ptr.To[int32](TargetPort), Protocol: ptr.To(corev1.ProtocolTCP),
	}}
	for _, addr := range addrs {
		bytes := addr.As4()
		n := int(binary.BigEndian.Uint32(bytes[:]))
		e := random.AddEndpoint(slice, addr)
		e.Conditions.Ready, e.Conditions.Serving, e.Conditions.Terminating = ptr.To(true), ptr.To(true), ptr.To(false)
		e.NodeName = ptr.To(fmt.Sprintf("node-%03d", n%1000)) // none of them has a proxy
		e.Zone = ptr.To(fmt.Sprintf("zone-%c", 'a'+n%3))
		pod := fmt.Sprintf("%s-%08x", name, n)
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: NamespaceName, Name: pod, UID: uid(1, n)}
	}
	return slice
}

func uid(kind, n int) types.UID { return types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", kind, n)) }
