// Package healthcheck answers load balancers that ask this node over HTTP whether to send it traffic.
//
// It owns the health-check NodePorts of services with externalTrafficPolicy: Local ([ServiceServer]): their listeners,
// which follow the services and the node's addresses, and their answers, which are kube-proxy's to the byte. It does not
// know where services and endpoints come from, nor what makes the proxy healthy: it asks a function.
//
// The health of the proxy itself, /healthz and /livez, is told by a server of its own ([ProxyServer]). Both need a server of HTTP that
// listens before it serves and tries again when it cannot; [HTTPServer] is that, for other pages of the command, too.
package healthcheck
