// Package localhost forwards TCP connections from 127.0.0.1 or ::1 to the
// endpoints of NodePorts (KEP-6032). The kernel cannot do that: it drops
// packets from loopback addresses that leave the loopback interface, unless
// route_localnet is set, which IPv6 does not have.
//
// A [Server] has one listener for each NodePort with endpoints. It chooses an
// endpoint for each connection and copies bytes in both directions. It knows
// neither Kubernetes objects nor rules of the kernel.
package localhost
