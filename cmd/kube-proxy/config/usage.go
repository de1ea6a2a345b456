package config

import (
	"fmt"
	"io"
)

const usage = `kube-proxy serves Kubernetes Services on this node: it sends connections to the addresses of a
Service to its endpoints. It programs the nftables tables "ip kube-proxy" and "ip6 kube-proxy".

Usage:
  kube-proxy --config FILE [flags]
  kube-proxy --kubeconfig FILE [flags]
  kube-proxy --manifests DIR [flags]
  kube-proxy --cleanup
`

// PrintUsage writes the usage and the help texts of the flags, in groups.
func (o *Options) PrintUsage(w io.Writer) {
	fmt.Fprint(w, usage)
	for _, name := range groupNames {
		fmt.Fprintf(w, "\n%s flags:\n%s", name, o.cmd.groups.FlagSet(name).FlagUsagesWrapped(100))
	}
}
