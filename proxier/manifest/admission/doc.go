// Package admission applies the defaults and the validation of the API server
// (Kubernetes 1.36) to objects that no API server has seen.
//
// There is one function for each kind. It sets the defaults of an object and
// returns the errors that an API server would return on creation. It may also
// return warnings: properties of a valid object that limit how it is served.
//
// The package owns the rules for single objects. It does not own the reading
// of files or the comparison of objects. It performs no I/O, does not log,
// and allocates neither addresses nor ports.
//
// # Differences from the API server
//
//   - The status of Services and Nodes is read: status.loadBalancer.ingress
//     sets the load balancer IPs of a Service. The status of a Service that
//     is not of type LoadBalancer is dropped, with a warning.
//   - Values that the API server allocates stay unset, with a warning:
//     clusterIP, nodePort and healthCheckNodePort. A nodePort may be any
//     port.
//   - clusterIP defaults to the first element of clusterIPs, and clusterIPs
//     to clusterIP. ipFamilyPolicy defaults to a value that matches the
//     numbers of clusterIPs and ipFamilies.
//   - The ports of an EndpointSlice must be port numbers, and the IP
//     addresses of a Node must be IP addresses. The API server accepts any
//     value.
package admission
