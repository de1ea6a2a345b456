package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	hooks "github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
)

// checkFilters checks whether rules of other programs drop packets after their
// translation.
func checkFilters(ctx context.Context, _ *node) Finding {
	s, err := followSamples(ctx, samplesOf, (*hooks.Tables).Journeys)
	blocks := slices.DeleteFunc(s.effects, func(e hooks.Effect) bool { return !e.Blocks() })
	switch {
	case err != nil:
		return unknown(err)
	case len(blocks) > 0:
		return filterFinding(blocks)
	case s.samples == 0:
		return skipped("the tables of nftproxy have no endpoint whose packets could be checked")
	}
	return ok(fmt.Sprintf("no rule of another program drops %d sample packets to endpoints, or the answers", s.samples))
}

func filterFinding(blocks []hooks.Effect) Finding {
	finding := Finding{
		Result: Info, Reason: "rules of other programs may drop packets to endpoints",
		Remedy: "accept translated connections before these rules (nft: ct status dnat accept; iptables: -m " +
			"conntrack --ctstate DNAT,ESTABLISHED,RELATED -j ACCEPT), or the range of the pods",
	}
	policies, programs, sure := 0, 0, false
	for _, b := range blocks {
		finding.Details = append(finding.Details, b.String())
		switch {
		case b.Action == hooks.Loses:
			finding.Result, finding.Reason = Fail, "the kernel drops packets to endpoints that wait for a program"
			finding.Remedy = "start the program that listens to the queue, or delete the rules that it left"
		case b.Action == hooks.Asks:
			programs++
		case b.NetworkPolicy != "": // intended
			policies++
			sure = sure || b.Certain
		case b.Certain:
			finding.Result, finding.Reason = Fail, "rules of other programs drop packets to endpoints"
		case b.Rule == 0 && finding.Result == Info: // no rule accepts the packet for sure
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

// survey is the effects of other programs on sample connections.
type survey struct {
	effects []hooks.Effect
	tables  int      // the number of tables of nftproxy
	samples int      // the number of connections
	earlier []string // the nat chains that precede those of nftproxy
}

// followSamples follows journeys of sample connections.
func followSamples(
	ctx context.Context, samples func(*explain.Kernel) ([]sample, error),
	journeys func(*hooks.Tables, *hooks.Connection) []hooks.Journey,
) (all survey, err error) {
	err = explain.InTables(func(k *explain.Kernel) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var of survey
		_, err := k.Conn.Snapshot(func() (err error) {
			of, err = followSamplesOf(k, samples, journeys)
			return err
		})
		for _, e := range of.effects {
			all.effects = hooks.Add(all.effects, e)
		}
		all.tables++
		all.samples += of.samples
		for _, chain := range of.earlier { // chains of family inet are found in both families
			if !slices.Contains(all.earlier, chain) {
				all.earlier = append(all.earlier, chain)
			}
		}
		return err
	})
	if errors.Is(err, explain.ErrNoTable) {
		err = nil
	}
	return all, err
}

// followSamplesOf is followSamples for one family.
func followSamplesOf(
	k *explain.Kernel, samples func(*explain.Kernel) ([]sample, error),
	journeys func(*hooks.Tables, *hooks.Connection) []hooks.Journey,
) (s survey, err error) {
	tables, err := hooks.Read(k.Conn, k.Table, k)
	if err == nil {
		err = tables.Unseen
	}
	if err != nil {
		return s, err
	}
	all, err := samples(k)
	if err != nil {
		return s, err
	}
	s.earlier = tables.EarlierNAT()
	for _, sample := range all {
		s.samples++
		found, err := tables.Follow(sample.description, journeys(tables, &sample.Connection))
		if err != nil {
			return s, err
		}
		for _, e := range found {
			s.effects = hooks.Add(s.effects, e)
		}
	}
	return s, nil
}
