package tour

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/test/demo/cluster"
	"github.com/nftproxy/nftproxy/test/demo/page"
	"github.com/nftproxy/nftproxy/test/lab"
)

// stranger is a second address of the client, which shop/checkout's source ranges do not have.
func stranger() cluster.Dual {
	return cluster.Dual{IPv4: netip.MustParseAddr("172.30.0.200"), IPv6: netip.MustParseAddr("fd00:30::1:200")}
}

// nobody are addresses in the ServiceCIDR that no Service has.
func nobody() cluster.Dual {
	return cluster.Dual{IPv4: netip.MustParseAddr("10.96.0.99"), IPv6: netip.MustParseAddr("fd00:96::99")}
}

// refusal is a call that must not be answered, with the reason.
type refusal struct {
	call
	because string
}

// refusals are the calls of the scene.
func (t *tour) refusals() []refusal {
	web, payments, payUDP, checkout := t.services.web, t.services.payments, t.services.paymentsUDP, t.services.checkout
	refused, dropped := noAnswer(lab.Refused), noAnswer(lab.TimedOut)
	asStranger := checkout.loadBalancerIP("client", dropped)
	asStranger.source = stranger()
	const noEndpoints, noSource = "no endpoints", "not in the source ranges"
	return []refusal{
		{payments.clusterIP("client", refused), noEndpoints},
		{payments.nodePort("node2", "client", refused), noEndpoints},
		{payments.clusterIP("node1", refused), noEndpoints},
		{payUDP.clusterIP("toolbox", refused), noEndpoints},
		{payUDP.nodePort("node1", "client", refused), noEndpoints},
		{web.call("toolbox", "ClusterIP, port 81", web.ClusterIPs, 81, refused), "the Service has no such port"},
		{web.call("client", "ClusterIP, port 81", web.ClusterIPs, 81, refused), "the Service has no such port"},
		{call{from: "toolbox", service: "nobody", to: "ClusterIP " + nobody().IPv4.String(), protocol: "tcp", addrs: nobody(), port: 80, want: dropped},
			"no Service has this ClusterIP"},
		{asStranger, noSource},
		{checkout.loadBalancerIP("toolbox", dropped), noSource},
	}
}

// showRefusals connects to what must not answer.
func (t *tour) showRefusals(ctx context.Context) (err error) {
	t.page.Scene("Who does not answer")
	t.page.Text("Where nobody can answer, the client is told so at once: TCP by a reset, UDP by an ICMP port unreachable. " +
		"What must not pass is dropped: the client hears nothing.")
	refusals := t.refusals()
	calls := make([]call, len(refusals))
	for i, r := range refusals {
		calls[i] = r.call
	}
	var outcomes []outcome
	err = t.withStranger(func() error {
		outcomes, err = t.callAll(ctx, calls)
		return err
	})
	if err != nil {
		return err
	}
	table := page.Table{Columns: []string{"FROM", "TO", "OVER", "IPv4", "IPv6", "BECAUSE"}}
	for i, r := range refusals {
		from := r.from
		if r.source.IsValid() {
			from = "stranger"
		}
		table.Add(t.checkError(r.String(), t.checkCall(r.call, outcomes[i])), from, r.service+", "+r.to,
			strings.ToUpper(r.protocol), ending(outcomes[i].ipv4), ending(outcomes[i].ipv6), r.because)
	}
	t.page.Table(table)
	t.page.Text("The stranger is a second address of the client, %s: shop/checkout's loadBalancerSourceRanges are %s.",
		stranger().IPv4, strings.Join(t.services.checkout.SourceRanges, " and "))
	return nil
}

// withStranger calls f while the client has the address of the stranger too.
func (t *tour) withStranger(f func() error) (err error) {
	for _, addr := range []netip.Addr{stranger().IPv4, stranger().IPv6} {
		alone := netip.PrefixFrom(addr, addr.BitLen())
		if err := t.stage.Lab.Client.AddAddr(alone); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, t.stage.Lab.Client.RemoveAddr(alone)) }()
	}
	return f()
}

// ending tells how all attempts ended.
func ending(got tally) string {
	if len(got.answers) == 0 && len(got.others) == 1 {
		for outcome := range got.others {
			if outcome == lab.TimedOut {
				return "no answer"
			}
			return outcome.String()
		}
	}
	return got.String()
}
