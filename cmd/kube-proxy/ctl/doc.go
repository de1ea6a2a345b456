// Package ctl is the command nftproxy: the second name of the binary
// kube-proxy, for the operators of a node. It reads the rules in the kernel
// and changes nothing.
package ctl
