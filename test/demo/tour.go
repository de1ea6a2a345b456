package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// tour shows the scenes on a cluster.
type tour struct {
	report
	cluster     *cluster
	nft         string // program
	started     time.Time
	connections atomic.Int64
}

// run shows all scenes. The error is the reason why the tour cannot continue.
// Failed checks are only counted.
func (t *tour) run(ctx context.Context) error {
	for _, show := range []func(context.Context) error{
		t.showCluster, t.showServices, t.showAnswers, t.showRefusals, t.showScaling, t.showUDP, t.showRestart, t.showFlush,
		t.showTable,
	} {
		err := show(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case t.err != nil:
			return fmt.Errorf("write the tour: %w", t.err)
		}
	}
	return nil
}

// summarize prints the result of the tour, which err may have ended early. It
// returns an error if the tour did not complete or a check failed.
func (t *tour) summarize(err error) error {
	failed := len(t.failures)
	t.scene("Summary", fmt.Sprintf("%d of %d checks passed, with %d connections in %.1f seconds.",
		t.checks-failed, t.checks, t.connections.Load(), time.Since(t.started).Seconds()))
	t.printed = 0 // print all failures again
	t.printFailures()
	switch {
	case err != nil:
		return fmt.Errorf("the tour stopped: %w", err)
	case failed > 0:
		return fmt.Errorf("%d of %d checks failed", failed, t.checks)
	}
	return t.err
}

const introduction = `nftproxy: the tour

This program builds a small cluster on this machine and runs kube-proxy on its nodes. It opens real
connections and checks the results. "ok" means that a check passed.
`

const drawing = `            client  172.30.0.100, fd00:30::100       outside the cluster; it reaches all
              |                                      addresses of Services through node1
    ----------+-----------------------------
       |                        |
     node1  172.30.0.11       node2  172.30.0.12     one kube-proxy process on each node
       |    fd00:30::11         |    fd00:30::12
     pods   10.244.1.x        pods   10.244.2.x      pods have routed addresses
            fd00:244:1::x            fd00:244:2::x`

// showCluster describes the namespaces and the processes.
func (t *tour) showCluster(context.Context) error {
	t.scene("The cluster", `
The client, the nodes and the pods are network namespaces. The kernel of this machine handles their
packets, by the rules that kube-proxy writes on the nodes.`)
	t.block(strings.Split(drawing, "\n")...)
	rows := [][]string{{"POD", "NODE", "IPv4", "IPv6", "PORT"}}
	for _, p := range pods() {
		rows = append(rows, []string{p.name, p.node, p.ipv4, p.ipv6, fmt.Sprint(p.port)})
	}
	t.table(rows)
	t.text("The toolbox is a client inside the cluster. kube-proxy reads manifests from a folder. The command on node1:")
	args := t.cluster.proxyArgs("node1")
	t.commands(t.cluster.commandLine("node1", "kube-proxy "+strings.Join(args[:2], " ")+" \\\n      "+strings.Join(args[2:], " ")))
	return nil
}

// showServices lists the Services of the manifests.
func (t *tour) showServices(context.Context) error {
	t.scene("The Services", `
The folder contains these Services with their EndpointSlices, the Nodes and a ServiceCIDR. Both
kube-proxy processes read it. shop/cart has sessionAffinity: ClientIP. shop/checkout has
externalTrafficPolicy: Local and loadBalancerSourceRanges. shop/payments has no endpoints.`)
	t.commands("ls " + t.cluster.manifests.folder)
	rows := [][]string{{"SERVICE", "TYPE", "CLUSTER IPS", "PORTS (:NODEPORT)", "EXTERNAL OR LOADBALANCER IPS"}}
	services := t.cluster.manifests.services
	for _, name := range slices.Sorted(maps.Keys(services)) {
		spec := services[name].Spec
		var ports []string
		for _, p := range spec.Ports {
			port := fmt.Sprintf("%s %d:%d", p.Protocol, p.Port, p.NodePort)
			ports = append(ports, strings.TrimSuffix(port, ":0"))
		}
		external := slices.Concat(spec.ExternalIPs, loadBalancerIPs(services[name]))
		row := []string{name, string(spec.Type)}
		for _, cell := range [][]string{spec.ClusterIPs, ports, external} {
			row = append(row, strings.Join(cell, ", "))
		}
		rows = append(rows, row)
	}
	t.table(rows)
	return nil
}

// showKept prints how to use and end a cluster that keeps running.
func (t *tour) showKept() {
	c := t.cluster
	t.scene("Look around", `
The cluster keeps running. Press Ctrl-C here to end its processes and to remove it. Until then, use
another terminal as root. Connect, and a pod answers with its name and the address that it sees:`)
	t.commands(c.commandLine("client", "bash -c 'head -1 </dev/tcp/192.0.2.80/80'"),
		c.commandLine("toolbox", "bash -c 'head -1 </dev/tcp/fd00:96::80/80'"),
		c.commandLine("client", "bash -c 'exec 3<>/dev/udp/192.0.2.53/53; echo >&3; head -1 <&3'"))
	t.text("Change a manifest, which kube-proxy reads on both nodes:")
	t.commands("$EDITOR "+c.manifests.endpointsFile("shop/web"), "tail -f "+c.logFile("node1"))
	t.text("Look at the rules and the connections of a node, or enter it:")
	t.commands(c.commandLine("node1", "nft list table ip kube-proxy"), c.commandLine("node1", "conntrack -L"),
		c.commandLine("node1", "bash"))
}
