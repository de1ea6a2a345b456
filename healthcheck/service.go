package healthcheck

import (
	"fmt"
	"net/http"
	"strconv"
)

// Service is a service with a health-check NodePort.
type Service struct {
	Namespace, Name string

	// Port is spec.healthCheckNodePort. Where it is 0, nothing listens.
	Port uint16

	// LocalEndpoints is the number of ready endpoints on this node.
	LocalEndpoints int
}

// name is a service's name within the cluster.
type name struct {
	namespace, name string
}

func (s Service) key() name { return name{s.Namespace, s.Name} }

func (n name) String() string { return n.namespace + "/" + n.name }

// answerFormat is kube-proxy's. It ends without a newline.
const answerFormat = `{
	"service": {
		"namespace": %q,
		"name": %q
	},
	"localEndpoints": %d,
	"serviceProxyHealthy": %v
}`

// answer tells a load balancer whether to send traffic for a service here: 200 if the proxy is healthy and the service
// has endpoints on this node, else 503. The weight lets balancers that know the header (GCP) send each node its share
// (KEP-1669, Kubernetes 1.31).
func answer(w http.ResponseWriter, n name, localEndpoints int, healthy bool) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(localEndpoints))
	if localEndpoints > 0 && healthy {
		w.WriteHeader(http.StatusOK)
	} else {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintf(w, answerFormat, n.namespace, n.name, localEndpoints, healthy)
}
