package tour

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/test/demo/page"
)

// showAnswers connects to the Services from everywhere.
func (t *tour) showAnswers(ctx context.Context) error {
	t.page.Scene("Who answers")
	t.page.Text("Each line is %d connections over IPv4 and as many over IPv6 (UDP: as many sockets, with one question each). "+
		"Every server says its name and the address from which it was asked. The numbers are how often each pod answered.",
		attempts)
	for _, show := range []func(context.Context) error{t.showWeb, t.showDNS, t.showCheckout, t.showCart} {
		if err := show(ctx); err != nil {
			return err
		}
	}
	t.page.Text("Try it yourself: run the tour with --keep, and then, in another terminal:")
	t.page.Try(t.stage.CommandLine("client", "bash -c 'head -1 </dev/tcp/10.96.0.80/80'"),
		t.stage.CommandLine("toolbox", "bash -c 'exec 3<>/dev/udp/fd00:96::10/53; echo >&3; head -1 <&3'"))
	return nil
}

// showWeb reaches a Service with a NodePort and external IPs, by everything from everywhere.
func (t *tour) showWeb(ctx context.Context) error {
	web := t.services.web
	seenAs := func(source string) want { return spreadOver(web.Pods(), source) }
	t.page.Text("shop/web: all pods answer at all its addresses. A pod that connects to a ClusterIP is seen with its own " +
		"address. Who comes from outside the cluster, or by a NodePort or an external IP, is seen as the node that took the " +
		"connection in, so that the answers come back that way.")
	return t.showCalls(ctx, web.Pods(), []call{
		web.clusterIP("client", seenAs("node1")),
		web.nodePort("node1", "client", seenAs("node1")),
		web.nodePort("node2", "client", seenAs("node2")),
		web.externalIP("client", seenAs("node1")),
		web.clusterIP("toolbox", seenAs("toolbox")),
		web.nodePort("node1", "toolbox", seenAs("node1")),
		web.nodePort("node2", "toolbox", seenAs("node2")),
		web.externalIP("toolbox", seenAs("node2")),
		web.clusterIP("node1", seenAs("node1")),
		web.nodePort("node1", "node1", seenAs("node1")),
		web.nodePort("node2", "node1", seenAs("node2")),
		web.externalIP("node1", seenAs("node1")),
	})
}

// showDNS reaches a Service over UDP and TCP.
func (t *tour) showDNS(ctx context.Context) error {
	udp, tcp := t.services.dns, t.services.dnsTCP
	seenAs := func(source string) want { return spreadOver(udp.Pods(), source) }
	t.page.Text("kube-system/dns: the same over UDP, and over TCP on the same port.")
	return t.showCalls(ctx, udp.Pods(), []call{
		udp.clusterIP("client", seenAs("node1")),
		udp.nodePort("node2", "client", seenAs("node2")),
		udp.externalIP("client", seenAs("node1")),
		udp.clusterIP("toolbox", seenAs("toolbox")),
		udp.clusterIP("node2", seenAs("node2")),
		tcp.externalIP("client", seenAs("node1")),
		tcp.clusterIP("toolbox", seenAs("toolbox")),
	})
}

// showCheckout reaches a Service with externalTrafficPolicy: Local and source ranges.
func (t *tour) showCheckout(ctx context.Context) error {
	checkout := t.services.checkout
	here := func(node string) want { return spreadOver(checkout.PodsOn(node), "client") }
	inside := spreadOver(checkout.Pods(), "toolbox")
	t.page.Text("shop/checkout has externalTrafficPolicy: Local. What comes from outside goes to pods of the node that it " +
		"arrived at, and they see the client's own address. For a pod of the cluster all of them answer.")
	return t.showCalls(ctx, checkout.Pods(), []call{
		checkout.loadBalancerIP("client", here("node1")),
		checkout.nodePort("node1", "client", here("node1")),
		checkout.nodePort("node2", "client", here("node2")),
		checkout.clusterIP("toolbox", inside),
		checkout.nodePort("node2", "toolbox", inside),
	})
}

// showCart reaches a Service with session affinity.
func (t *tour) showCart(ctx context.Context) error {
	cart := t.services.cart
	seenAs := func(source string) want { return alwaysOneOf(cart.Pods(), source) }
	t.page.Text("shop/cart has sessionAffinity: ClientIP. A client address stays with the pod that it got first.")
	return t.showCalls(ctx, cart.Pods(), []call{
		cart.clusterIP("client", seenAs("node1")),
		cart.clusterIP("toolbox", seenAs("toolbox")),
		cart.clusterIP("node1", seenAs("node1")),
	})
}

// showCalls makes the calls and shows who answered.
func (t *tour) showCalls(ctx context.Context, servers []string, calls []call) error {
	outcomes, err := t.callAll(ctx, calls)
	if err != nil {
		return err
	}
	names := strings.Join(servers, " ")
	table := page.Table{Columns: []string{"FROM", "TO", "OVER", "IPv4\n" + names, "IPv6\n" + names, "THE SERVER SAW"}}
	for i, c := range calls {
		got := outcomes[i]
		table.Add(t.checkError(c.String(), t.checkCall(c, got)), c.from, c.to, strings.ToUpper(c.protocol),
			got.ipv4.spread(servers), got.ipv6.spread(servers), t.seen(c, got))
	}
	t.page.Table(table)
	return nil
}

// seen tells as whom the servers saw the client.
func (t *tour) seen(c call, got outcome) string {
	hosts := map[string]struct{}{}
	for _, family := range []tally{got.ipv4, got.ipv6} {
		for source := range family.sources {
			hosts[t.stage.HostOf(source)] = struct{}{}
		}
	}
	if _, itself := hosts[c.from]; itself && len(hosts) == 1 {
		return c.from + " itself"
	}
	return strings.Join(slices.Sorted(maps.Keys(hosts)), ", ")
}
