package healthcheck

import (
	"fmt"
	"net/http"
	"strconv"

	"k8s.io/klog/v2"
)

// Service is a service with a health-check NodePort.
type Service struct {
	Namespace, Name string

	// Port is spec.healthCheckNodePort. If it is 0, the service has no
	// listener.
	Port uint16

	// LocalEndpoints is the number of ready endpoints on this node.
	LocalEndpoints int
}

func (s Service) key() klog.ObjectRef { return klog.KRef(s.Namespace, s.Name) }

// serviceHealthFormat is the format of kube-proxy. It ends without a newline.
const serviceHealthFormat = `{
	"service": {
		"namespace": %q,
		"name": %q
	},
	"localEndpoints": %d,
	"serviceProxyHealthy": %v
}`

// writeServiceHealth writes a response: 200 if the proxy is healthy and the
// service has endpoints on this node, 503 otherwise. Load balancers that
// support the weight header (GCP) distribute traffic by it (KEP-1669,
// Kubernetes 1.31).
func writeServiceHealth(w http.ResponseWriter, service klog.ObjectRef, localEndpoints int, healthy bool) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(localEndpoints))
	if localEndpoints > 0 && healthy {
		w.WriteHeader(http.StatusOK)
	} else {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintf(w, serviceHealthFormat, service.Namespace, service.Name, localEndpoints, healthy)
}
