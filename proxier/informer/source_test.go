package informer

import (
	"context"
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

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// recorder is a Handler that records its calls.
type recorder struct {
	mu    sync.Mutex
	calls []string
}

func (r *recorder) call(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *recorder) SetService(s *translate.Service)     { r.call("service %s", s.Name) }
func (r *recorder) DeleteService(n cluster.ServiceName) { r.call("no service %s", n) }
func (r *recorder) OnServiceSynced()                    { r.call("services synced") }
func (r *recorder) SetEndpointSlice(s *translate.EndpointSlice) {
	r.call("slice %s", s.Name.Name)
}
func (r *recorder) DeleteEndpointSlice(n translate.SliceName) { r.call("no slice %s", n.Name) }
func (r *recorder) OnEndpointSlicesSynced()                   { r.call("slices synced") }
func (r *recorder) OnNodeUpdate(_, n *corev1.Node) {
	r.call("node %s %d", n.Name, len(n.Status.Addresses))
}
func (r *recorder) OnNodeDelete(n *corev1.Node)          { r.call("no node %s", n.Name) }
func (r *recorder) OnNodeSynced()                        { r.call("node synced") }
func (r *recorder) OnServiceCIDRsChanged(cidrs []string) { r.call("cidrs %v", cidrs) }

// wait waits until a call was recorded n times.
func (r *recorder) wait(t *testing.T, what string, n int) {
	t.Helper()
	for range 2000 {
		if r.count(what) >= n {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("timed out waiting for %d calls %q, got %q", n, what, r.calls)
}

func (r *recorder) count(what string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, call := range r.calls {
		if call == what {
			n++
		}
	}
	return n
}

func testNode(addresses int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: fmt.Sprint(1 + addresses)}}
	for i := range addresses {
		n.Status.Addresses = append(n.Status.Addresses,
			corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", i)})
	}
	return n
}

// start runs a Source until the test ends.
func start(t *testing.T, client *fake.Clientset, change func(*Config)) *recorder {
	t.Helper()
	return startWith(t, serve(t, newFakeAPI(client)), change)
}

// startWith runs a Source of a client until the test ends.
func startWith(t *testing.T, client *apiclient.Client, change func(*Config)) *recorder {
	t.Helper()
	r := new(recorder)
	config := Config{Client: client, NodeName: "n1", Handler: r}
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

// objects returns a clientset with a Service, an EndpointSlice, two
// ServiceCIDRs and more objects.
func objects(more ...runtime.Object) *fake.Clientset {
	return fake.NewClientset(append(more,
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}},
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1"}},
		serviceCIDR("a", "10.96.0.0/16", "fd00::/112"),
		serviceCIDR("b", "10.96.0.0/16"),
	)...)
}

func serviceCIDR(name string, cidrs ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: cidrs},
	}
}

// The Synced methods are called in order after the Node has addresses.
func TestWaitsForNodeAddresses(t *testing.T) {
	client := objects(testNode(0))
	r := start(t, client, func(*Config) {})
	r.wait(t, "service default/web", 1)
	r.wait(t, "slice web-1", 1)
	r.wait(t, "cidrs [10.96.0.0/16 fd00::/112]", 1)
	time.Sleep(50 * time.Millisecond)
	if n := r.count("node synced"); n != 0 {
		t.Error("got OnNodeSynced before the Node had addresses")
	}
	if _, err := client.CoreV1().Nodes().Update(context.Background(), testNode(1), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.wait(t, "services synced", 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	var order []int
	for _, call := range []string{"node n1 1", "node synced", "slices synced", "services synced"} {
		order = append(order, slices.Index(r.calls, call))
	}
	if !slices.IsSorted(order) || order[0] < 0 {
		t.Errorf("got calls %q, want the Node, then node, slices and services synced", r.calls)
	}
}

// The Synced methods are not called while a list fails.
func TestWaitsForLists(t *testing.T) {
	api := newFakeAPI(objects(testNode(1)))
	api.broken = "endpointslices"
	r := startWith(t, serve(t, api), func(*Config) {})
	r.wait(t, "service default/web", 1)
	r.wait(t, "node n1 1", 1)
	time.Sleep(50 * time.Millisecond)
	if r.count("services synced")+r.count("slices synced") != 0 {
		t.Errorf("got calls %q, want no Synced call without EndpointSlices", r.calls)
	}
}

// Objects are delivered again only with a resync period, which is at least a
// second.
func TestResync(t *testing.T) {
	began := time.Now()
	r := start(t, objects(testNode(1)), func(c *Config) { c.ResyncPeriod = time.Millisecond })
	r.wait(t, "service default/web", 3)
	r.wait(t, "slice web-1", 3)
	if n, elapsed := r.count("service default/web"), time.Since(began); n > 1+int(elapsed/time.Second) {
		t.Errorf("got the Service %d times within %v, want at most once a second", n, elapsed)
	}
	once := start(t, objects(testNode(1)), func(*Config) {})
	once.wait(t, "services synced", 1)
	if n := once.count("service default/web"); n != 1 {
		t.Errorf("got the Service %d times without a period, want once", n)
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
