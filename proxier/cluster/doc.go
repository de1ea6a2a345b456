// Package cluster defines the state of a cluster that a service proxy needs:
// Services, their endpoints, and the node that the proxy runs on. A source
// passes this state to a Sink.
//
// The package contains plain structs only. Package translate builds them from
// objects of the Kubernetes API, and package table implements Sink.
package cluster
