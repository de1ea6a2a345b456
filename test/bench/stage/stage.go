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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/uuid"
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

// Load creates the Services from first to end-1 with their endpoints, and waits
// until the API server knows them.
func (s *Stage) Load(ctx context.Context, first, end int, endpoints func(service int) []netip.Addr) error {
	if first >= end {
		return nil
	}
	copier, err := s.CreateFirst(ctx, first, endpoints(first))
	if err != nil {
		return err
	}
	err = InParallel(ctx, first+1, end, func(ctx context.Context, i int) error {
		return copier.Create(ctx, i, endpoints(i))
	})
	if err != nil {
		return err
	}
	_, err = s.Services().List(ctx, metav1.ListOptions{LabelSelector: "app=" + ServiceName(end-1)})
	return err
}

// Copier creates Services in etcd: for each one, the API server of Kubernetes
// 1.33 or later counts all ClusterIPs twice, so that tens of thousands take
// hours.
type Copier struct {
	stage   *Stage
	service *corev1.Service
	slice   *discoveryv1.EndpointSlice
	ip      *networkingv1.IPAddress
}

// CreateFirst creates a Service with its endpoints, and returns a copier that
// creates others as the API server created this one.
func (s *Stage) CreateFirst(ctx context.Context, service int, endpoints []netip.Addr) (*Copier, error) {
	if err := s.Create(ctx, NewService(service), NewSlice(service, endpoints)); err != nil {
		return nil, err
	}
	c := &Copier{stage: s}
	name, get := ServiceName(service), metav1.GetOptions{}
	var errService, errSlice, errIP error
	c.service, errService = s.Services().Get(ctx, name, get)
	c.slice, errSlice = s.Slices().Get(ctx, name, get)
	c.ip, errIP = s.Client.NetworkingV1().IPAddresses().Get(ctx, Frontend(service).Addr().String(), get)
	return c, errors.Join(errService, errSlice, errIP)
}

// Create creates a Service with its endpoints.
func (c *Copier) Create(ctx context.Context, service int, endpoints []netip.Addr) error {
	like := func(made, first *metav1.ObjectMeta) {
		made.UID, made.CreationTimestamp = uuid.NewUUID(), metav1.Now()
		made.Generation, made.ManagedFields = first.Generation, first.ManagedFields
	}
	made, spec := NewService(service), c.service.Spec.DeepCopy()
	spec.ClusterIP, spec.Selector = made.Spec.ClusterIP, made.Spec.Selector
	spec.ClusterIPs = []string{spec.ClusterIP}
	made.Spec = *spec
	like(&made.ObjectMeta, &c.service.ObjectMeta)
	slice := NewSlice(service, endpoints)
	like(&slice.ObjectMeta, &c.slice.ObjectMeta)
	ip := c.ip.DeepCopy()
	ip.Name, ip.ResourceVersion, ip.Spec.ParentRef.Name = spec.ClusterIP, "", made.Name
	like(&ip.ObjectMeta, &c.ip.ObjectMeta)
	return c.stage.Cluster.Store(ctx, map[string]runtime.Object{
		"services/specs/" + NamespaceName + "/" + made.Name:  made,
		"endpointslices/" + NamespaceName + "/" + slice.Name: slice,
		"ipaddresses/" + ip.Name:                             ip,
	})
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
