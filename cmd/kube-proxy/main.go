// Command kube-proxy serves Kubernetes Services on this node with nftables, by netlink.
package main

import (
	"os"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/app"
)

func main() { os.Exit(app.Main(os.Args[1:], os.Stdout, os.Stderr)) }
