package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
)

func firstPods() []string { return []string{"web-1", "web-2", "web-3"} }
func newPods() []string   { return []string{"web-4", "web-5"} }

// scaled is an event that gives shop/web these pods.
func (t *tour) scaled(name string, pods ...string) event {
	want := pods
	if len(pods) == 0 {
		want = refused().answers
	}
	return event{name: name, want: [2][]string{want, want}, do: func() error {
		return t.cluster.manifests.setEndpoints("shop/web", pods...)
	}}
}

// unchanged is an event that keeps the first pods of shop/web.
func unchanged(name string, do func() error) event {
	return event{name: name, do: do, want: [2][]string{firstPods(), firstPods()}}
}

const (
	steadyPeriod = 4 * time.Millisecond
	lossyPeriod  = 10 * time.Millisecond // while connections wait for lossyTimeout
	lossyTimeout = time.Second
)

// showScaling scales shop/web while clients connect to it.
func (t *tour) showScaling(ctx context.Context) error {
	t.scene("Scaling under load", `
Four clients connect to shop/web, 250 times per second each. The client outside uses an external IP,
and thereby node1. The toolbox uses a ClusterIP, and thereby node2. Both use IPv4 and IPv6. Meanwhile
the demo adds and removes endpoints in the manifest. IN FORCE AFTER is the time from that change until
both clients of the node see it. kube-proxy waits 75 ms of it for more changes. THEN are the answers
from that time on. Without pods, connections must be refused. No connection may be lost.`)
	t.commands("mv new.yaml " + t.cluster.manifests.endpointsFile("shop/web"))
	addrs, err := t.cluster.addresses("shop/web", clusterIP, "tcp")
	if err != nil {
		return err
	}
	open, result := lab.Open(ctx, t.cluster.hosts["toolbox"], "tcp", addrs[0], lab.ProbeOptions{})
	if open == nil {
		return fmt.Errorf("connect to %s: %v", addrs[0], result)
	}
	defer open.Close()
	if err := t.showEvents(ctx, steadyPeriod, lab.DefaultTimeout, []event{
		unchanged("3 pods", nil),
		t.scaled("scaled up to 5", slices.Concat(firstPods(), newPods())...),
		t.scaled("scaled down to 2", firstPods()[:2]...),
		t.scaled("scaled down to 0"),
		t.scaled("scaled up to 3", firstPods()...),
	}); err != nil {
		return err
	}
	if result = open.Ask(ctx); result.Outcome != lab.Answered {
		err = fmt.Errorf("the connection that was opened before: %v", result)
	}
	t.check(err, "A connection that was opened before still works.")
	return nil
}

// showRestart kills kube-proxy on node1, replaces the pods, and starts it.
func (t *tour) showRestart(ctx context.Context) error {
	node1 := t.cluster.lab.Node1
	replaced := t.scaled("web-4 and web-5 replace the pods", newPods()...)
	replaced.want[0] = firstPods()
	t.scene("kube-proxy is killed and restarted", `
The rules are in the kernel. Without kube-proxy, connections continue to work, and changes have no
effect. The four clients continue. The former pods keep running.`)
	t.commands(fmt.Sprintf("kill -9 %d    # kube-proxy on node1", t.cluster.proxies["node1"].cmd.Process.Pid))
	return t.showEvents(ctx, steadyPeriod, lab.DefaultTimeout, []event{
		unchanged("kube-proxy runs", nil),
		unchanged("kube-proxy is killed on node1", t.cluster.proxies["node1"].kill),
		replaced,
		{name: "kube-proxy is started on node1", want: [2][]string{newPods(), newPods()}, do: func() error {
			return t.cluster.startProxy(ctx, node1)
		}},
		t.scaled("the former pods return", firstPods()...),
	})
}

// showFlush flushes the ruleset of node1.
func (t *tour) showFlush(ctx context.Context) error {
	t.scene("Another program flushes the ruleset", `
The demo removes all rules of node1. kube-proxy checks every 50 ms whether another program changed
rules, and restores its tables. Connections through node1 are lost until then. Those through node2
are not affected.`)
	t.commands(t.cluster.commandLine("node1", "nft flush ruleset"))
	before, err := t.listTables(ctx)
	if err != nil {
		return err
	}
	flush := unchanged("the ruleset is flushed", func() error {
		_, err := t.cluster.run(ctx, "node1", t.nft, "flush", "ruleset")
		return err
	})
	flush.lossy = true
	if err := t.showEvents(ctx, lossyPeriod, lossyTimeout, []event{unchanged("before", nil), flush}); err != nil {
		return err
	}
	after, err := t.listTables(ctx)
	if err == nil && after != before {
		err = fmt.Errorf("the tables after the flush are:\n%s\nwant:\n%s", after, before)
	}
	t.check(err, "The tables of both families are the same as before, row by row.")
	return nil
}

// showUDP removes the endpoint of a UDP flow in each family.
func (t *tour) showUDP(ctx context.Context) error {
	t.scene("The endpoint of a UDP client is removed", `
The kernel sends all packets of a UDP flow to the same endpoint, as long as the client uses the same
socket. If the endpoint is removed, kube-proxy deletes the flow from the kernel's connection
tracking. The next packet reaches another endpoint.`)
	addrs, err := t.cluster.addresses("kube-system/dns", clusterIP, "udp")
	if err != nil {
		return err
	}
	t.commands(t.connectCommand("toolbox", "udp", addrs[0]))
	var flows []*lab.Conn
	for _, addr := range addrs {
		flow, err := t.openFlow(ctx, addr, "dns-2")
		if err != nil {
			return err
		}
		defer flow.Close()
		flows = append(flows, flow)
		t.check(askAll(ctx, flow, "dns-2"), "%s: dns-2 answers 20 packets of a flow.", addr)
	}
	if err := t.cluster.manifests.setEndpoints("kube-system/dns", "dns-1"); err != nil {
		return err
	}
	for i, removed := range []time.Time{time.Now(), time.Now()} {
		// A packet that arrives while the flow is deleted may be lost.
		for time.Since(removed) < effectTimeout && ctx.Err() == nil {
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			answer := answerOf(flows[i].Ask(short))
			cancel()
			if answer == "dns-1" {
				break
			}
		}
		delay := time.Since(removed).Round(time.Millisecond)
		t.check(askAll(ctx, flows[i], "dns-1"), "%s: dns-2 is removed. dns-1 answers on the same socket, after %v.", addrs[i], delay)
	}
	return t.cluster.manifests.setEndpoints("kube-system/dns", "dns-1", "dns-2")
}

// openFlow opens flows until one reaches the pod.
func (t *tour) openFlow(ctx context.Context, to netip.AddrPort, pod string) (*lab.Conn, error) {
	for range 60 {
		t.connections.Add(1)
		flow, result := lab.Open(ctx, t.cluster.hosts["toolbox"], "udp", to, lab.ProbeOptions{})
		if flow == nil {
			return nil, fmt.Errorf("send to %s: %v", to, result)
		}
		if result.Answer.Server == pod {
			return flow, nil
		}
		flow.Close()
	}
	return nil, fmt.Errorf("send to %s: %s never answers", to, pod)
}

// askAll returns an error if the pod does not answer 20 packets of the flow.
func askAll(ctx context.Context, flow *lab.Conn, pod string) error {
	for range 20 {
		if answer := answerOf(flow.Ask(ctx)); answer != pod {
			return fmt.Errorf("%s: got %s, want an answer from %s", flow.RemoteAddr(), answer, pod)
		}
	}
	return nil
}
