// Command kube-proxy serves Kubernetes Services on a node: it programs nftables
// through netlink. It takes the flags and the configuration file of kube-proxy.
// Under the name nftproxy it answers questions about the Services of the node.
package main

import (
	"os"
	"path/filepath"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/app"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator"
)

func main() {
	if filepath.Base(os.Args[0]) == operator.Name {
		os.Exit(operator.Main(operator.Config{Version: app.Version, Stdout: os.Stdout, Stderr: os.Stderr}, os.Args[1:]))
	}
	os.Exit(app.Main(os.Args[1:], os.Stdout, os.Stderr))
}
