package objects

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/random"
)

// Sentinel is a Service that changes after all others. Each watch delivers
// changes in their order, so a proxy that serves a change of the sentinel has
// received all earlier changes of Services and EndpointSlices. It has written
// those that were made before the last change but one: nftproxy writes the
// changes that it received at the same time in any order, and some of them
// later if their namespace had many.
type Sentinel struct {
	API *API
	// Number distinguishes several sentinels.
	Number int
	// Pods are the names of two endpoints with different addresses.
	Pods [2]string
	// Addrs are the addresses of endpoints by name.
	Addrs map[string][2]netip.Addr

	changes int // that succeeded
}

// Mark is a change of a sentinel.
type Mark struct {
	addrs [2]netip.Addr
	port  uint16
	pod   string
}

// Change changes the sentinel and its EndpointSlices. After an error, the next
// call makes the same change: two of them could have the same endpoint.
func (s *Sentinel) Change(ctx context.Context) (Mark, error) {
	const first, ports = 1000, 60_000
	m := Mark{port: uint16(first + s.changes%ports), pod: s.Pods[s.changes%2]}
	name := fmt.Sprintf("sentinel-%d", s.Number)
	for f, prefix := range lab.ServiceRanges() {
		m.addrs[f] = lab.AddrIn(prefix, 0xff00+s.Number)
		slice := random.NewSlice(name, fmt.Sprintf("%s-%d", name, f), f)
		slice.Ports = []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To[int32](random.FirstTarget)}}
		random.AddEndpoint(slice, s.Addrs[m.pod][f])
		if err := s.API.PutSlice(ctx, slice); err != nil {
			return m, err
		}
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: random.Namespace}}
	service.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	service.Spec.ClusterIPs = []string{m.addrs[0].String(), m.addrs[1].String()}
	service.Spec.ClusterIP = service.Spec.ClusterIPs[0]
	service.Spec.Ports = []corev1.ServicePort{{Port: int32(m.port)}}
	_, err := s.API.PutService(ctx, service)
	if err == nil {
		s.changes++
	}
	return m, err
}

// Served returns nil if a proxy serves the change to a namespace in both
// families, and otherwise the first other result.
func (m Mark) Served(ctx context.Context, from *lab.Namespace) error {
	for _, addr := range m.addrs {
		to := netip.AddrPortFrom(addr, m.port)
		got := lab.Probe(ctx, from, "tcp", to, lab.ProbeOptions{Timeout: time.Second})
		if got.Outcome != lab.Answered || got.Answer.Server != m.pod {
			return fmt.Errorf("sentinel %s: got %v, want an answer of %s", to, got, m.pod)
		}
	}
	return nil
}
