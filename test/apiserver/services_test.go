package apiserver

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/test/cluster/objects"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/frontend"
	"github.com/nftproxy/nftproxy/test/random"
)

// namespace is the namespace of all Services here.
const namespace = metav1.NamespaceDefault

// serviceManifest is a Service of type NodePort with TCP and UDP at port 80 in
// both families.
//
//go:embed testdata/service.yaml
var serviceManifest []byte

// api returns the administrator's client of server.
func (w *world) api() kubernetes.Interface { return w.server().Client }

// expose creates a Service as in testdata/service.yaml with these endpoints,
// after the modifiers have changed it.
func (w *world) expose(name string, pods []string, modifiers ...func(*corev1.Service)) {
	w.t.Helper()
	object := new(corev1.Service)
	w.must(yaml.UnmarshalStrict(serviceManifest, object))
	object.Name = name
	for _, modify := range modifiers {
		modify(object)
	}
	_, err := w.api().CoreV1().Services(namespace).Create(w.ctx(), object, metav1.CreateOptions{})
	w.must(err)
	w.setEndpoints(name, name, pods, time.Time{})
}

// setEndpoints creates or updates EndpointSlices of a Service: NAME-0 with the
// IPv4 addresses of pods, NAME-1 with the IPv6 addresses. The annotation has
// the time of the change that caused it, unless this is zero.
func (w *world) setEndpoints(service, name string, pods []string, changed time.Time) {
	w.t.Helper()
	api := &objects.API{Client: w.api(), Namespace: namespace}
	for f := range 2 {
		slice := random.NewSlice(service, fmt.Sprintf("%s-%d", name, f), f)
		if !changed.IsZero() {
			at := changed.Format(time.RFC3339Nano)
			slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: at}
		}
		for port, protocol := range map[string]corev1.Protocol{"tcp": corev1.ProtocolTCP, "udp": corev1.ProtocolUDP} {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
				Name: &port, Protocol: &protocol, Port: ptr.To[int32](target),
			})
		}
		for _, name := range pods {
			random.AddEndpoint(slice, w.pods[name].Addrs()[f]).NodeName = &w.pods[name].Node.Name
		}
		w.must(api.PutSlice(w.ctx(), slice))
	}
}

// delete deletes a Service and its EndpointSlices.
func (w *world) delete(name string) {
	w.t.Helper()
	w.must(w.api().CoreV1().Services(namespace).Delete(w.ctx(), name, metav1.DeleteOptions{}))
	w.must(w.api().DiscoveryV1().EndpointSlices(namespace).DeleteCollection(w.ctx(), metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name}))
}

// service returns a Service. While the API server does not run, and after the
// deletion of the Service, it returns what it returned before.
func (w *world) service(name string) *corev1.Service {
	w.t.Helper()
	object, err := w.api().CoreV1().Services(namespace).Get(w.ctx(), name, metav1.GetOptions{})
	if err == nil {
		w.services[name] = object
	} else if w.services[name] == nil {
		w.must(err)
	}
	return w.services[name]
}

// frontends returns the frontends of a Service. The kind is clusterIP,
// nodePort or loadBalancerIP, or starts with it: nodePort@ADDRESS,ADDRESS has
// other addresses of the node, and clusterIP:8000 has another port.
func (w *world) frontends(service, kind string) (found []frontend.Frontend) {
	w.t.Helper()
	kind, addresses, moved := strings.Cut(kind, "@")
	kind, port, changed := strings.Cut(kind, ":")
	nodes := w.Node1.Addrs()
	if moved {
		nodes = nil
		for address := range strings.SplitSeq(addresses, ",") {
			nodes = append(nodes, netip.MustParseAddr(address))
		}
	}
	for _, f := range frontend.Of(w.service(service), nodes...) {
		if strings.EqualFold(strings.ReplaceAll(string(f.Kind), " ", ""), kind) {
			if changed {
				number, err := strconv.ParseUint(port, 10, 16)
				w.must(err)
				f.To = netip.AddrPortFrom(f.To.Addr(), uint16(number))
			}
			found = append(found, f)
		}
	}
	return found
}

// route is a source of connections and their destinations.
type route struct {
	from *lab.Namespace
	to   []frontend.Frontend
}

// routes returns the routes to the ClusterIPs of a Service from a pod of node1
// and from node1, and to its NodePorts from the client.
func (w *world) routes(service string) []route {
	w.t.Helper()
	ips, ports := w.frontends(service, "clusterIP"), w.frontends(service, "nodePort")
	all := []route{{w.pods["a1"].Namespace, ips}, {w.Node1.Namespace, ips}, {w.Client, ports}}
	return slices.DeleteFunc(all, func(r route) bool { return len(r.to) == 0 })
}

// connect makes attempts on all routes until new ones bring no other answer,
// and returns the names of the pods that answer: "none" if an attempt is not
// answered. If routes have different answers, it returns two of them.
func (w *world) connect(routes ...route) string {
	first := ""
	for _, r := range routes {
		for _, to := range r.to {
			pods, line := w.answers(r.from, to), fmt.Sprintf("%s -> %v", r.from.Name, to)
			if before, of, ok := strings.Cut(first, " on "); ok && before != pods {
				return fmt.Sprintf("%s on %s, but %s on %s", before, of, pods, line)
			}
			first = pods + " on " + line
		}
	}
	pods, _, _ := strings.Cut(first, " on ")
	return pods
}

// answers returns the names of the pods that answer at a frontend.
func (w *world) answers(from *lab.Namespace, to frontend.Frontend) string {
	// The probability to miss one of four pods is (3/4)^20.
	const enough = 20
	seen := map[string]bool{}
	for last := 0; last < enough; last++ {
		result := to.Probe(w.ctx(), from, lab.ProbeOptions{Timeout: shortly})
		name := result.Answer.Server
		if result.Outcome != lab.Answered {
			name = "none"
			last = enough
		} else if !seen[name] {
			last = 0
		}
		seen[name] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), " ")
}

// reaches waits until these pods and no others answer.
func (w *world) reaches(pods string, routes ...route) {
	w.t.Helper()
	eventually(w.t, "connections", func() error {
		if got := w.connect(routes...); got != pods {
			return fmt.Errorf("got answers of %s, want %s", got, pods)
		}
		return nil
	})
}

// sources returns the names of the namespaces whose addresses endpoints see on
// routes.
func (w *world) sources(routes ...route) string {
	names := map[netip.Addr]string{}
	for _, name := range slices.AppendSeq([]string{"client", "node1", "node2"}, maps.Keys(w.pods)) {
		for _, addr := range w.at(name).Addrs() {
			names[addr] = name
		}
	}
	seen := map[string]bool{}
	for _, r := range routes {
		for _, to := range r.to {
			result := to.Probe(w.ctx(), r.from, lab.ProbeOptions{Timeout: shortly})
			seen[names[result.Answer.Source.Addr()]] = true
			if result.Outcome != lab.Answered {
				seen["none"] = true
			}
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), " ")
}

// chosen connects several times on each route, and returns a line with the pod
// that answers. It is an error if different pods answer.
func chosen(ctx context.Context, routes ...route) (string, error) {
	var text strings.Builder
	for _, r := range routes {
		for _, to := range r.to {
			first := ""
			for range 5 {
				result := to.Probe(ctx, r.from, lab.ProbeOptions{Timeout: answerTimeout})
				if result.Outcome != lab.Answered || first != "" && first != result.Answer.Server {
					return "", fmt.Errorf("%s -> %v: got %v, before an answer of %q", r.from.Name, to, result, first)
				}
				first = result.Answer.Server
			}
			fmt.Fprintf(&text, "%s -> %v: %s\n", r.from.Name, to, first)
		}
	}
	return text.String(), nil
}
