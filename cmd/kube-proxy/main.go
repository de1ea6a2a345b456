// Command kube-proxy serves Kubernetes Services on a node: it programs nftables
// through netlink. It takes the flags and the configuration file of kube-proxy.
package main

import (
	"os"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/app"
)

func main() { os.Exit(app.Main(os.Args[1:], os.Stdout, os.Stderr)) }
