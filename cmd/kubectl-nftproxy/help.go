package main

import (
	"fmt"
	"strings"
)

// help returns the help of the plugin.
func help() string {
	var lines strings.Builder
	for _, v := range verbs {
		fmt.Fprintf(&lines, "  %-10s %s", v.name, v.about)
		if v.everywhere {
			lines.WriteString("; on all nodes by default")
		}
		lines.WriteString("\n")
	}
	return strings.Replace(helpText, "@VERBS", lines.String(), 1)
}

const helpText = `Run the command nftproxy in the pods of nftproxy, on one node or on several.

Usage:
  kubectl nftproxy VERB [ARGUMENTS and FLAGS of the verb] [FLAGS]

Verbs:
@VERBS
The nftproxy in the pods defines the verbs: "kubectl nftproxy VERB --help" prints
the help of the nftproxy in a running pod.

Flags:
      --node NODE        node on which the verb runs; can be repeated, or a list
                         separated by commas
      --all-nodes        run the verb on all nodes with a pod of nftproxy
      --node-timeout TIME
                         time to wait for each node (default 30s for verbs that
                         run on all nodes by default, none for others)
  -n, --namespace NAME   namespace of the DaemonSet (default kube-system); after
                         services, explain, history, top and trace, the namespace
                         of the Service
  -l, --selector LABELS  labels of the pods (default k8s-app=kube-proxy)
      --help, --version

The flags of kubectl that select a cluster and a user work too: --kubeconfig,
--context, --cluster, --user, --server, --token, --as, --as-group, --as-uid,
--certificate-authority, --client-certificate, --client-key, --tls-server-name,
--insecure-skip-tls-verify and --request-timeout.

On several nodes, status prints a table with a row for each node, services,
history and top one table of all nodes, and doctor each finding once, with the
nodes that have it. top then ends; with one --node, it repeats its table each
second. The output of other verbs, and of these with -o text, follows a line
"NODE name", or the names of all nodes with the same output. With -o json or
-o yaml, it is one object with a field for each node.

A command about a pod, with --from pod/NAMESPACE/NAME or that as its destination,
runs on the node of the pod.

The exit code is the highest exit code of all nodes. It is 2 if the verb did not
run on a node, or for an error of the command line, and 1 for other errors of the
plugin.

The user needs the permissions to list pods and to create pods/exec in the
namespace of the DaemonSet, and to get the pods that commands name.

Examples:
  kubectl nftproxy status
  kubectl nftproxy history web -n shop --since 10m
  kubectl nftproxy top --sort unanswered
  kubectl nftproxy top web -n shop --node worker-1
  kubectl nftproxy doctor --node worker-1,worker-2
  kubectl nftproxy explain svc/shop/web --from pod/shop/client-0
  kubectl nftproxy explain svc/default/web --from outside --node worker-1
  kubectl nftproxy services -n shop

For completion, create a link to the plugin on the PATH:
  ln -s "$(command -v kubectl-nftproxy)" /usr/local/bin/kubectl_complete-nftproxy
`
