// Package cluster knows what the tour's manifests say: which Services there are, at which addresses, and which pods answer
// for them. It writes the EndpointSlices of a Service anew, for scaling.
//
// It does not check manifests (kube-proxy does) and touches neither files nor namespaces.
package cluster
