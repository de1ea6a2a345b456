// Package explain predicts the fate of a packet to an address of a Service: the
// endpoints that it can reach, or the refusal and its reason.
//
// It contains no model of the rules that the proxy writes. It walks a
// hypothetical first packet of a connection through the rules that a table has
// (package walk), and takes the meaning of chains and rows from package
// ruleset. Only the chains that the packet enters are read, and maps are read
// by key, so the time does not depend on the number of Services.
//
// The table is the one in the kernel (InKernel), or the one that a proxy wants.
// A running proxy walks a packet through the latter (Desired), and Result.Add
// compares both.
//
// The walk covers the table kube-proxy. Result.AddWays adds the routes to the
// endpoints (package route), Result.AddOthers what other tables do (package
// node). The endpoints themselves are not part of it.
package explain
