package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/nft/xtables"
)

// checkFilters checks whether rules of other programs drop packets after their
// translation.
func checkFilters(ctx context.Context, _ *node) Finding {
	blocks, samples, err := findBlocks(ctx, (*sample).journeys)
	switch {
	case err != nil:
		return unknown(err)
	case len(blocks) > 0:
		return filterFinding(blocks)
	case samples == 0:
		return skipped("the tables of nftproxy have no endpoint whose packets could be checked")
	}
	return ok(fmt.Sprintf("no rule of another program drops %d sample packets to endpoints, or the answers", samples))
}

func filterFinding(blocks []block) Finding {
	finding := Finding{
		Result: Info, Reason: "rules of other programs may drop packets to endpoints",
		Remedy: "accept translated connections before these rules (nft: ct status dnat accept; iptables: -m " +
			"conntrack --ctstate DNAT,ESTABLISHED,RELATED -j ACCEPT), or the range of the pods",
	}
	policies, programs, sure := 0, 0, false
	for _, b := range blocks {
		text := b.String()
		description, isPolicy := explain.PolicyOf(b.table, b.chain, b.text)
		if isPolicy {
			text += "; it looks like " + description
		}
		finding.Details = append(finding.Details, text)
		switch {
		case b.queued == unread:
			finding.Result, finding.Reason = Fail, "the kernel drops packets to endpoints that wait for a program"
			finding.Remedy = "start the program that listens to the queue, or delete the rules that it left"
		case b.queued == decided:
			programs++
		case isPolicy: // intended
			policies++
			sure = sure || b.certain
		case b.certain:
			finding.Result, finding.Reason = Fail, "rules of other programs drop packets to endpoints"
		case b.rule == 0 && finding.Result == Info: // no rule accepts the packet for sure
			finding.Result = Warn
		}
	}
	const allow = "allow the connections in the NetworkPolicy (kubectl get networkpolicies -A), unless it forbids " +
		"them on purpose"
	switch {
	case programs == len(blocks):
		finding.Reason = "programs decide about packets to endpoints"
		finding.Remedy = "if connections fail, read the log of the program that listens to the queue"
	case policies == 0:
	case policies+programs == len(blocks):
		if finding.Reason, finding.Remedy = "network policies drop packets to endpoints", allow; !sure {
			finding.Reason = "network policies may drop packets to endpoints"
		}
	default:
		finding.Remedy += "; for rules of network policies, " + allow
	}
	return finding
}

// findBlocks returns the rules of other programs that drop or reject packets on
// journeys to endpoints of some Services. samples is the number of connections
// that were evaluated.
func findBlocks(
	ctx context.Context, journeys func(*sample) []journey,
) (blocks []block, samples int, err error) {
	legacy, err := xtables.Read()
	if err != nil {
		return nil, 0, err
	}
	err = explain.InTables(func(k *explain.Kernel) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		found, n, err := findBlocksOf(k, legacy, journeys)
		blocks, samples = append(blocks, found...), samples+n
		return err
	})
	if errors.Is(err, explain.ErrNoTable) {
		err = nil
	}
	return blocks, samples, err
}

// findBlocksOf is findBlocks for one family.
func findBlocksOf(
	k *explain.Kernel, legacy []*xtables.Table, journeys func(*sample) []journey,
) (blocks []block, samples int, err error) {
	_, err = k.Conn.Snapshot(func() error {
		blocks, samples = nil, 0
		firewall, err := newFirewall(k, legacy)
		if err != nil {
			return err
		}
		sampler, err := newSampler(k)
		if err != nil {
			return err
		}
		for _, s := range sampler.samples() {
			samples++
			found, err := firewall.check(&s, journeys(&s))
			if err != nil {
				return err
			}
			for _, b := range found {
				blocks = addBlock(blocks, b)
			}
		}
		return nil
	})
	return blocks, samples, err
}

// block is a rule, or a policy, of another program that drops or rejects a
// packet on its way to an endpoint, or the answer to it.
type block struct {
	table, chain string
	base         string // the base chain that leads to the chain
	rule         int    // the number of the rule, 0 for the policy of the base chain
	handle       uint64 // of the rule, 0 for legacy tables
	text         string // of the rule in nft syntax, as far as it is understood
	packet       string // the first of these packets
	packets      int
	certain      bool // it does not depend on facts that are not known
	queued       queued
}

// addBlock adds a block, or another packet to a known one.
func addBlock(blocks []block, b block) []block {
	i := slices.IndexFunc(blocks, b.sameRule)
	if i < 0 {
		b.packets = 1
		return append(blocks, b)
	}
	known := &blocks[i]
	if b.certain && !known.certain {
		known.certain, known.packet = true, b.packet
	}
	known.packets++
	return blocks
}

// sameRule reports whether two blocks are of the same rule.
func (b block) sameRule(o block) bool {
	return b.table == o.table && b.base == o.base && b.chain == o.chain && b.rule == o.rule
}

// String returns "table inet fw, chain forward, rule 2 (handle 7): drop: pod
// 10.244.1.5 → …".
func (b block) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, chain %s", b.table, b.chain)
	if b.rule > 0 {
		fmt.Fprintf(&text, ", rule %d", b.rule)
	}
	if b.handle > 0 {
		fmt.Fprintf(&text, " (handle %d)", b.handle)
	}
	verb := "drops"
	switch {
	case b.queued == decided:
		verb = "a program decides about"
	case b.queued == unread:
		verb = "no program listens to the queue, so the kernel drops"
	case !b.certain:
		verb = "may drop"
	}
	fmt.Fprintf(&text, ": %s: %s %s", b.text, verb, b.packet)
	if b.packets > 1 {
		fmt.Fprintf(&text, " and %d more", b.packets-1)
	}
	return text.String()
}
