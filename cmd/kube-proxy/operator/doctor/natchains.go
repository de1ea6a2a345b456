package doctor

import (
	"context"
	"slices"
	"strings"

	hooks "github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
)

// checkNATChains looks for nat chains of other programs that the kernel can
// call before the proxy's nat chains. If one of them translates a packet to a
// Service, the kernel skips the proxy's chains.
func checkNATChains(ctx context.Context, _ *node) Finding {
	s, err := followSamples(ctx, samplesOf, (*hooks.Tables).Journeys)
	switch {
	case err != nil:
		return unknown(err)
	case s.tables == 0:
		return skipped("no table of nftproxy")
	case len(s.earlier) == 0:
		return ok("no nat chain of another program precedes the nat chains of nftproxy")
	}
	return natFinding(&s)
}

func natFinding(s *survey) Finding {
	finding := ok("no nat chain of another program that precedes nftproxy translates a sample packet to a Service")
	translate := slices.DeleteFunc(s.effects, func(e hooks.Effect) bool {
		return e.Action != hooks.Translates || !e.Early()
	})
	for _, e := range translate {
		finding.Details = append(finding.Details, e.String())
	}
	for _, chain := range s.earlier {
		of := func(e hooks.Effect) bool { return strings.HasPrefix(chain, e.Table+", chain "+e.Base+" ") }
		if !slices.ContainsFunc(translate, of) {
			finding.Details = append(finding.Details, chain+": translates no sample packet")
		}
	}
	switch {
	case len(translate) == 0:
		return finding
	case slices.ContainsFunc(translate, hooks.Effect.Ends):
		finding.Result = Warn
		finding.Reason = "nat chains of other programs translate packets to Services before nftproxy can"
	default:
		finding.Result = Info
		finding.Reason = "nat chains of other programs may translate packets to Services, or their sources, " +
			"before nftproxy can"
	}
	finding.Remedy = "exclude the addresses of Services from these rules, or move the chains to the priority " +
		"dstnat, or srcnat in postrouting, where they follow nftproxy"
	return finding
}
