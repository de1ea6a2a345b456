package tour

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/test/demo/cluster"
	"github.com/nftproxy/nftproxy/test/demo/page"
	"github.com/nftproxy/nftproxy/test/demo/stage"
)

const drawing = `
            client  172.30.0.100, fd00:30::100        outside the cluster; its way to all
              |                                       service addresses leads through node1
    ----------+-----------------------------
       |                        |
     node1  172.30.0.11       node2  172.30.0.12      kube-proxy runs here, one process a node
       |    fd00:30::11         |    fd00:30::12
     pods   10.244.1.x        pods   10.244.2.x       routed, with addresses of their own
            fd00:244:1::x            fd00:244:2::x`

// showCluster introduces the boxes and the processes.
func (t *tour) showCluster(context.Context) error {
	t.page.Scene("The cluster")
	t.page.Text("Every box is a network namespace of this machine. The packets between them are real, and the kernel of " +
		"this machine handles them by the rules that kube-proxy wrote on the nodes.")
	t.page.Listing(strings.Split(drawing, "\n")[1:]...)
	t.page.Table(t.podTable())
	t.page.Text("On each node runs kube-proxy as a process of its own. It takes the state of the cluster from a folder of " +
		"manifests; both read the same one. This is how it was started on node1:")
	args := t.stage.ProxyArgs("node1")
	t.page.Try(t.stage.CommandLine("node1", "kube-proxy "+strings.Join(args[:2], " ")+" \\\n"+strings.Join(args[2:], " ")))
	return nil
}

// podTable lists the pods.
func (t *tour) podTable() page.Table {
	table := page.Table{Columns: []string{"POD", "NODE", "IPv4", "IPv6", "ANSWERS FOR"}}
	add := func(e cluster.Endpoint, what string) {
		table.Add(page.None, e.Pod, e.Node, e.IPv4.String(), e.IPv6.String(), what)
	}
	for _, service := range t.stage.Services {
		for _, e := range service.Endpoints {
			add(e, fmt.Sprintf("%s, on %s", service, strings.Join(targets(service), " and ")))
		}
	}
	add(stage.Toolbox(), "nothing: it plays the client inside the cluster")
	return table
}

// targets lists the ports of a Service's pods.
func targets(s *cluster.Service) []string {
	var ports []string
	for _, p := range s.Ports {
		ports = append(ports, fmt.Sprintf("%s %d", strings.ToUpper(p.Protocol), p.TargetPort))
	}
	return slices.Compact(ports)
}
