// Command demo is the product tour: it lays out a small cluster in network namespaces, runs kube-proxy on its nodes, shows
// with real connections what it does, and ends with an error if that is not what it should do. It needs root, and cleans up
// behind itself.
//
//	demo --kube-proxy bin/kube-proxy [--keep]
//
// This package owns the command: flags, what the machine must have, signals, the exit code, the manifests. What is shown
// is in package tour, what it is shown on in package stage.
package main
