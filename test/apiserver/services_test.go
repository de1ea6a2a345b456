package apiserver

import (
	"fmt"
	"strings"
	"testing"
)

// TestServices creates, changes and deletes Services and EndpointSlices.
func TestServices(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.createService("before", "a1 b1")
	w.subject().startSynced()
	before.servedBy("a1 b1")

	web := w.createService("web", "a1 a2 b1")
	web.servedBy("a1 a2 b1")
	web.setEndpoints("a2 b1 b2")
	web.servedBy("a2 b1 b2")
	web.setEndpoints("")
	web.unserved()
	web.setEndpoints("b2")
	web.servedBy("b2")
	web.delete()
	web.unserved()
	before.servedBy("a1 b1")
}

// TestKubectl does so with kubectl.
func TestKubectl(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subject().startSynced()
	w.kubectl(manifest(w, "a1", "b1"), "apply", "--filename=-")
	shop := w.lookUp("shop")
	shop.servedBy("a1 b1")

	w.kubectl(manifest(w, "a2", "b1"), "apply", "--filename=-")
	shop.servedBy("a2 b1")

	w.kubectl("", "patch", "service", "shop", "--type=json",
		`--patch=[{"op": "replace", "path": "/spec/ports/0/port", "value": 8000},`+
			`{"op": "replace", "path": "/spec/ports/1/port", "value": 8000}]`)
	old := shop.clusterIPs()
	shop = w.lookUp("shop")
	shop.servedBy("a2 b1")
	w.silent(w.pods["a1"].Namespace, old)

	w.kubectl("", "delete", "service,endpointslice", "--selector=app=shop")
	shop.unserved()
}

// manifest returns a Service with these endpoints in both families.
func manifest(w *world, endpoints ...string) string {
	var text strings.Builder
	text.WriteString(`
apiVersion: v1
kind: Service
metadata: {name: shop, labels: {app: shop}}
spec:
  type: NodePort
  ipFamilyPolicy: PreferDualStack
  ports:
  - {name: tcp, port: 80, targetPort: 8080, nodePort: 30080}
  - {name: udp, port: 80, targetPort: 8080, nodePort: 30080, protocol: UDP}
`)
	for f, family := range []string{"IPv4", "IPv6"} {
		fmt.Fprintf(&text, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-%d, labels: {app: shop, kubernetes.io/service-name: shop}}
addressType: %s
ports:
- {name: tcp, port: 8080}
- {name: udp, port: 8080, protocol: UDP}
endpoints:
`, f, family)
		for _, name := range endpoints {
			pod := w.pods[name]
			fmt.Fprintf(&text, "- {addresses: [%q], nodeName: %s}\n", pod.Addrs()[f], pod.Node.Name)
		}
	}
	return text.String()
}
