// Package explain predicts the fate of a packet to an address of a Service: the
// endpoints that it can reach, or the refusal and its reason.
//
// It contains no model of the rules that the proxy writes. It interprets the
// rules that a table has: it decodes their expressions and evaluates them for a
// hypothetical first packet of a connection. Where the kernel draws a random
// number, the walk forks. Only the chains that the packet enters are read, and
// maps are read by key, so the time does not depend on the number of Services.
//
// The table is that of the kernel (Kernel), or the one that a proxy wants. A
// running proxy walks a packet through the latter (Desired), and Result.Add
// compares both.
//
// The walk covers the table kube-proxy. Other tables, the route to an endpoint
// and the endpoint itself are not part of it. For other tables, Kernel.Blocks
// evaluates the rules of filter chains for packets to some endpoints. These
// rules can depend on facts that are not known: the walk forks there, and what
// follows is possible, but not certain.
package explain
