package differential

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/test/apiserver/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
)

const apiPort = 6443

// world is an API server and two sides that have it.
type world struct {
	sides  [2]*side
	client kubernetes.Interface
	kube   *cluster.Cluster
	marks  int // changes of the sentinel
}

// newWorld creates a world. No proxy runs yet.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{}
	for i, path := range []string{program(proxies()[0]), buildProduct(t)} {
		w.sides[i] = newSide(t, proxies()[i], path)
	}
	var err error
	w.kube, err = cluster.Start(t.Context(), cluster.Config{
		Namespace: w.sides[0].control.Namespace, Programs: filepath.Dir(program("etcd")),
		Dir: filepath.Join(t.TempDir(), "cluster"), ServiceRanges: lab.ServiceRanges(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.kube.Close(); err != nil {
			t.Error(err)
		}
	})
	w.sides[1].relay(t, w.sides[0])
	w.client = w.kube.Admin()
	if err := w.createObjects(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

// createObjects creates the objects that all clusters have.
func (w *world) createObjects(ctx context.Context) error {
	for _, n := range w.sides[0].Nodes() {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
		for _, prefix := range n.PodRanges {
			node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, prefix.String())
		}
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
		node, err := w.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		for _, addr := range n.Addrs() {
			node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{
				Type: corev1.NodeInternalIP, Address: addr.String(),
			})
		}
		if _, err := w.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	second := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "second"}}
	for _, prefix := range secondServiceRanges() {
		second.Spec.CIDRs = append(second.Spec.CIDRs, prefix.String())
	}
	_, err := w.client.NetworkingV1().ServiceCIDRs().Create(ctx, second, metav1.CreateOptions{})
	return err
}

// restart starts both proxies, with a configuration, on nodes without rules.
func (w *world) restart(ctx context.Context, config string) error {
	for _, s := range w.sides {
		s.stop()
		if err := s.start(ctx, config); err != nil {
			return fmt.Errorf("%s: %w", s.proxy, err)
		}
	}
	return nil
}

// sentinel is the name of a Service that changes after all others.
const sentinel = "sentinel"

// settle changes the sentinel and its EndpointSlices, and waits until both
// proxies serve it with the changes. Each watch delivers changes in their
// order, so the proxies have written all earlier ones then.
func (w *world) settle(ctx context.Context) error {
	w.marks++
	port, pod := int32(1000+w.marks), []string{"a1", "a2"}[w.marks%2]
	for f := range lab.ServiceRanges() {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-%d", sentinel, f), Namespace: namespace,
				Labels: map[string]string{discoveryv1.LabelServiceName: sentinel},
			},
			AddressType: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}[f],
			Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To[int32](firstTarget)}},
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{w.sides[0].endpoints()[pod][f].String()}}},
		}
		if err := w.putSlice(ctx, s); err != nil {
			return err
		}
	}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: sentinel, Namespace: namespace}}
	s.Spec.Ports = []corev1.ServicePort{{Port: port}}
	s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	s.Spec.ClusterIP = sentinelAddrs()[0].String()
	s.Spec.ClusterIPs = []string{s.Spec.ClusterIP, sentinelAddrs()[1].String()}
	if _, err := w.putService(ctx, s); err != nil {
		return err
	}
	var errs []error
	for _, side := range w.sides {
		errs = append(errs, side.awaitSentinel(ctx, uint16(port), pod))
	}
	return errors.Join(errs...)
}

func sentinelAddrs() [2]netip.Addr {
	ranges := lab.ServiceRanges()
	return [2]netip.Addr{lab.AddrIn(ranges[0], 0xff00), lab.AddrIn(ranges[1], 0xff00)}
}

func (s *side) awaitSentinel(ctx context.Context, port uint16, pod string) error {
	const patience = 30 * time.Second
	var last lab.Result
	for end := time.Now().Add(patience); time.Now().Before(end); {
		synced := true
		for _, addr := range sentinelAddrs() {
			to := netip.AddrPortFrom(addr, port)
			last = lab.Probe(ctx, s.Node1.Namespace, "tcp", to, lab.ProbeOptions{Timeout: time.Second})
			if last.Outcome != lab.Answered || last.Answer.Server != pod {
				synced = false
				break
			}
		}
		if synced {
			return nil
		}
		if err := s.process.Pause(10 * time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s has not written the last change: sentinel: %v; log:\n%s", s.proxy, last, s.endOfLog())
}

func (s *side) endOfLog() string {
	const enough = 3000
	text, err := os.ReadFile(s.log())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-enough):])
}
