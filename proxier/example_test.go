package proxier_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/must"
)

// A program passes objects of the Kubernetes API to a Proxier, which keeps the
// rules up to date until the context ends, and answers questions about them.
func Example() {
	if err := serve(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func serve(out io.Writer) error {
	p, err := proxier.NewDualStackProxier(proxier.Config{NodeName: "box"})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.SyncLoop(ctx)
	}()
	defer func() {
		cancel()
		<-ended
		p.Close() // the rules stay
	}()

	p.OnServiceAdd(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	})
	p.OnEndpointSliceAdd(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080)}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.5"}}},
	})
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
	<-p.Synced()

	return p.Query(ctx, nft.IPv4, func(t *table.Table) error {
		view, _ := t.Service(cluster.ServiceName{Namespace: "shop", Name: "web"})
		for _, f := range view.Ports[0].Frontends {
			fmt.Fprintf(out, "%s %s:%d: %s by %d endpoint\n", f.Kind, f.Address, f.Port, f.State, f.UsedEndpoints)
		}
		return nil
	})
}

func TestExample(t *testing.T) {
	nstest.Enter(t)
	var out strings.Builder
	must.NoError(t, serve(&out))
	if want := "ClusterIP 10.96.0.10:80: Served by 1 endpoint\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
