package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// recorder notes what a source tells.
type recorder struct {
	mu   sync.Mutex
	told []string
}

func (r *recorder) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, fmt.Sprintf(format, args...))
}

func (r *recorder) SetService(s *translate.Service)     { r.note("service %s", s.Name) }
func (r *recorder) DeleteService(n cluster.ServiceName) { r.note("no service %s", n) }
func (r *recorder) OnServiceSynced()                    { r.note("services synced") }
func (r *recorder) SetEndpointSlice(s *translate.EndpointSlice) {
	r.note("slice %s", s.Name.Name)
}
func (r *recorder) DeleteEndpointSlice(n translate.SliceName) { r.note("no slice %s", n.Name) }
func (r *recorder) OnEndpointSlicesSynced()                   { r.note("slices synced") }
func (r *recorder) OnNodeUpdate(_, n *corev1.Node) {
	r.note("node %s %d", n.Name, len(n.Status.Addresses))
}
func (r *recorder) OnNodeDelete(n *corev1.Node)          { r.note("no node %s", n.Name) }
func (r *recorder) OnNodeSynced()                        { r.note("node synced") }
func (r *recorder) OnServiceCIDRsChanged(cidrs []string) { r.note("cidrs %v", cidrs) }

// wait waits until something was told n times.
func (r *recorder) wait(t *testing.T, what string, n int) {
	t.Helper()
	for range 2000 {
		if r.count(what) >= n {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%q was not told %d times: %q", what, n, r.told)
}

func (r *recorder) count(what string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, told := range r.told {
		if told == what {
			n++
		}
	}
	return n
}

func testNode(addresses int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: fmt.Sprint(1 + addresses)}}
	for i := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", i)})
	}
	return n
}

// start runs a source until the test ends.
func start(t *testing.T, client *fake.Clientset, change func(*Config)) *recorder {
	t.Helper()
	r := new(recorder)
	config := Config{Client: client, NodeName: "n1", ServiceCIDRs: true, Handler: r}
	change(&config)
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return r
}

func objects(more ...runtime.Object) *fake.Clientset {
	return fake.NewClientset(append(more,
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}},
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1"}},
		&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16", "fd00::/112"}}},
		&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}}},
	)...)
}

// Nothing is complete before the Node object tells its addresses; then everything is, in order.
func TestWaitsForTheNode(t *testing.T) {
	client := objects(testNode(0))
	r := start(t, client, func(*Config) {})
	r.wait(t, "service default/web", 1)
	r.wait(t, "slice web-1", 1)
	r.wait(t, "cidrs [10.96.0.0/16 fd00::/112]", 1)
	time.Sleep(50 * time.Millisecond)
	if n := r.count("node synced"); n != 0 {
		t.Error("complete without the addresses of the node")
	}
	if _, err := client.CoreV1().Nodes().Update(context.Background(), testNode(1), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.wait(t, "services synced", 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	order := []int{slices.Index(r.told, "node n1 1"), slices.Index(r.told, "node synced"), slices.Index(r.told, "slices synced"), slices.Index(r.told, "services synced")}
	if !slices.IsSorted(order) || order[0] < 0 {
		t.Errorf("told in the order %q", r.told)
	}
}

// Nothing is complete while one of the lists is refused.
func TestWaitsForTheLists(t *testing.T) {
	client := objects(testNode(1))
	client.PrependReactor("list", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("not now")
	})
	r := start(t, client, func(*Config) {})
	r.wait(t, "service default/web", 1)
	r.wait(t, "node n1 1", 1)
	time.Sleep(50 * time.Millisecond)
	if r.count("services synced")+r.count("slices synced") != 0 {
		t.Errorf("complete without EndpointSlices: %q", r.told)
	}
}

// What is known is told again by period, and only then.
func TestResync(t *testing.T) {
	r := start(t, objects(testNode(1)), func(c *Config) { c.ResyncPeriod = time.Second })
	r.wait(t, "service default/web", 3)
	r.wait(t, "slice web-1", 3)
	once := start(t, objects(testNode(1)), func(*Config) {})
	once.wait(t, "services synced", 1)
	if n := once.count("service default/web"); n != 1 {
		t.Errorf("without a period the Service was told %d times", n)
	}
}

func TestDeletions(t *testing.T) {
	client := objects(testNode(1))
	r := start(t, client, func(*Config) {})
	r.wait(t, "services synced", 1)
	ctx := context.Background()
	for _, err := range []error{
		client.CoreV1().Services("default").Delete(ctx, "web", metav1.DeleteOptions{}),
		client.DiscoveryV1().EndpointSlices("default").Delete(ctx, "web-1", metav1.DeleteOptions{}),
		client.NetworkingV1().ServiceCIDRs().Delete(ctx, "a", metav1.DeleteOptions{}),
		client.CoreV1().Nodes().Delete(ctx, "n1", metav1.DeleteOptions{}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []string{"no service default/web", "no slice web-1", "cidrs [10.96.0.0/16]", "no node n1"} {
		r.wait(t, what, 1)
	}
}
