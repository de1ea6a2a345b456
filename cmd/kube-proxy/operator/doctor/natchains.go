package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
)

// checkNATChains looks for nat chains of other programs that the kernel can
// call before those of the proxy. If one of them translates a packet to a
// Service, the kernel does not call those of the proxy.
func checkNATChains(ctx context.Context, _ *node) Finding {
	var all []earlierChain
	err := explain.InTables(func(k *explain.Kernel) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		found, err := earlierChains(k)
		for _, c := range found {
			all = addEarlier(all, c)
		}
		return err
	})
	if errors.Is(err, explain.ErrNoTable) {
		return skipped("no table of nftproxy")
	}
	if err != nil {
		return unknown(err)
	}
	return natFinding(all)
}

func natFinding(all []earlierChain) Finding {
	if len(all) == 0 {
		return ok("no nat chain of another program precedes those of nftproxy")
	}
	finding := ok("no nat chain of another program that precedes nftproxy translates a sample packet to a Service")
	for _, c := range all {
		finding.Details = append(finding.Details, c.String())
		switch {
		case c.effect == "" || finding.Result == Warn:
		case c.certain && c.Hook.Point != nft.Postrouting:
			finding.Result = Warn
			finding.Reason = "nat chains of other programs translate packets to Services before nftproxy can"
		default:
			finding.Result = Info
			finding.Reason = "nat chains of other programs may translate packets to Services, or their sources, " +
				"before nftproxy can"
		}
	}
	if finding.Result != OK {
		finding.Remedy = "exclude the addresses of Services from these rules, or move the chains to the priority " +
			"dstnat, or srcnat in postrouting, where they follow nftproxy"
	}
	return finding
}

// earlierChain is a nat chain that precedes those of the proxy at its hook.
type earlierChain struct {
	filterChain
	// effect is what it does to the first of the packets that it translates, ""
	// if it translates none. certain reports whether it depends on no facts
	// that are not known.
	effect  string
	certain bool
}

// String returns "table inet site, chain pre (prerouting, priority -150): …".
func (c *earlierChain) String() string {
	effect := c.effect
	if effect == "" {
		effect = "translates no sample packet"
	}
	return fmt.Sprintf("%s, chain %s (%s, priority %d): %s", c.table, c.Name, c.Hook.Point, c.Hook.Priority, effect)
}

// addEarlier adds a chain. Those of the family inet are found for each address
// family: the one with an effect counts.
func addEarlier(all []earlierChain, c earlierChain) []earlierChain {
	i := slices.IndexFunc(all, func(o earlierChain) bool { return o.table == c.table && o.Name == c.Name })
	switch {
	case i < 0:
		return append(all, c)
	case all[i].effect == "" || c.certain && !all[i].certain:
		all[i] = c
	}
	return all
}

// earlierChains returns the nat chains that precede those of the proxy. If the
// priorities are equal, the last one that was registered comes first.
func earlierChains(k *explain.Kernel) (all []earlierChain, err error) {
	_, err = k.Conn.Snapshot(func() error {
		all = nil
		firewall, err := newFirewall(k, nil)
		if err != nil {
			return err
		}
		sampler, err := newSampler(k)
		if err != nil {
			return err
		}
		samples := sampler.samples()
		for _, c := range firewall.nat {
			if own, known := firewall.own[c.Hook.Point]; !known || c.Hook.Priority > own {
				continue
			}
			earlier := earlierChain{filterChain: c}
			if err := firewall.translates(&earlier, samples); err != nil {
				return err
			}
			all = append(all, earlier)
		}
		return nil
	})
	return all, err
}

// translates sets what a chain does to the first packets of samples.
func (f *firewall) translates(c *earlierChain, samples []sample) error {
	for i := range samples {
		s := &samples[i]
		stages := requestOf(s)
		at := slices.IndexFunc(stages, func(stage stage) bool { return stage.point == c.Hook.Point })
		if at < 0 {
			continue
		}
		ended, err := walk.New(c.rules, f.kernel).Run(walk.NewPath(stages[at].packet), c.Name)
		if err != nil {
			return err
		}
		translating := slices.DeleteFunc(slices.Clone(ended), func(p *walk.Path) bool {
			return p.End.By == nil || !walk.Translates(p.End.By.Rule)
		})
		if len(translating) == 0 || c.effect != "" && len(translating) < len(ended) {
			continue
		}
		by := translating[0].End.By
		verb := "may translate"
		if c.certain = len(translating) == len(ended); c.certain {
			verb = "translates"
		}
		c.effect = fmt.Sprintf("rule %d (%s) %s %s", by.Index+1, by.Rule.Text(c.family), verb, s.description)
		if by.Chain != c.Name {
			c.effect = "chain " + by.Chain + ", " + c.effect
		}
		if c.certain {
			return nil
		}
	}
	return nil
}
