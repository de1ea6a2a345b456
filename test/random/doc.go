// Package random generates random clusters of Services with EndpointSlices, and
// changes of them, as a function of a seed. All random tests use it: those of
// the tables and of explain, the comparison with kube-proxy, and Soak. Package
// test/cluster/objects writes the objects to an API server; Pass passes them to
// a sink.
//
// Each aspect of a Service, such as its ports, follows from a seed of its own,
// so that a change can concern one of them.
//
// The addresses are the addresses of package lab. Endpoints are the pods and
// nodes that the caller names, with servers at FirstTarget and SecondTarget.
package random
