// Package healthcheck answers load balancers that ask this node over HTTP whether to send it traffic.
//
// It owns the health-check NodePorts of services with externalTrafficPolicy: Local ([ServiceServer]): their listeners,
// which follow the services and the node's addresses, and their answers, which are kube-proxy's to the byte. It does not
// know where services and endpoints come from, nor what makes the proxy healthy: it asks a function. The endpoints that
// tell the health of the proxy itself are a server of their own and have no part in ServiceServer.
package healthcheck
