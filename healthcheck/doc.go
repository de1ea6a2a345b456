// Package healthcheck serves HTTP health checks to load balancers, which
// decide by the status codes whether to send traffic to this node. Paths,
// headers, bodies and status codes are as in kube-proxy 1.36.
// [ProxyServer] documents the only exception.
//
// The package has three servers:
//
//   - [ServiceServer] serves the health-check NodePorts of services with
//     externalTrafficPolicy: Local.
//   - [ProxyServer] serves the health of the proxy itself: /healthz and
//     /livez.
//   - [HTTPServer] is the base of ProxyServer. It serves a handler on one
//     address. Other parts of the command use it, too.
//
// # Scope
//
// The package owns the listeners, which follow the services and the addresses
// of the node, and the responses.
//
// It does not watch services, endpoints or nodes, and does not import the
// Kubernetes API: its caller reports changes as plain structs. It does not
// decide whether the proxy is healthy: it calls a function. It does not write
// rules. Of Kubernetes it imports only the logger klog.
package healthcheck
