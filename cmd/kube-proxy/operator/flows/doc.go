// Package flows counts the connections to frontends of Services, by endpoint
// and by state, from the connection tracking of this node.
//
// Filters run in the kernel, and connections are counted while they arrive, so
// memory does not depend on the number of connections.
//
// Connection tracking does not know Services. Package explain supplies the
// names of service ports, and the endpoints that are in use.
package flows
