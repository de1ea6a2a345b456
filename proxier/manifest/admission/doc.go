// Package admission validates objects that no API server has seen.
//
// There is one function for each kind. It sets the namespace of an object and
// returns the errors of the fields that a proxy reads, with the paths and the
// messages of the API server (Kubernetes 1.36). It may also return warnings:
// properties of a valid object that limit how it is served.
//
// The package owns the rules for single objects. It does not own the reading
// of files, the comparison of objects, or the defaults of absent fields, which
// package translate applies. It performs no I/O, does not log, and allocates
// neither addresses nor ports.
//
// # Differences from the API server
//
//   - Fields that no proxy reads are not checked, such as targetPort and
//     selector. Nor are limits on the numbers of elements, and the fields of
//     Services that are not served: headless ones and Services of type
//     ExternalName.
//   - The status of Services and Nodes is read: status.loadBalancer.ingress
//     sets the load balancer IPs of a Service of type LoadBalancer.
//   - Values that the API server allocates stay unset, with a warning:
//     clusterIP, nodePort and healthCheckNodePort. A nodePort may be any
//     port.
//   - clusterIP defaults to the first element of clusterIPs, and clusterIPs
//     to clusterIP.
//   - The ports of an EndpointSlice must be port numbers, and the IP
//     addresses of a Node must be IP addresses. The API server accepts any
//     value.
package admission
