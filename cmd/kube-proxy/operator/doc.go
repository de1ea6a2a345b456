// Package operator is the command nftproxy: the second name of the binary
// kube-proxy, for the operators of a node. It asks the running proxy through
// its unix socket, or reads the rules in the kernel. It changes nothing, except
// for the table with which trace follows packets.
package operator
