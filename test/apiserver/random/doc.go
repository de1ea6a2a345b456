// Package random generates random clusters of Services with EndpointSlices, and
// changes of them, as a function of a seed. It writes them to an API server.
//
// The addresses are the addresses of package lab: endpoints are the pods and
// nodes that the caller names, and have servers at FirstTarget and
// SecondTarget. The package does not run proxies and sends no traffic, except
// for the probes of a Sentinel.
package random
