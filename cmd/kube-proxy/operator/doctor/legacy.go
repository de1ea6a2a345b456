package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/xtables"
	"github.com/nftproxy/nftproxy/proxier/leftovers"
)

// checkLeftovers checks for rules of other modes of kube-proxy.
func checkLeftovers(context.Context, *node) Finding {
	found, err := leftovers.Find()
	switch {
	case len(found) > 0:
		return Finding{
			Result: Warn, Reason: "rules of kube-proxy's mode iptables or ipvs can translate packets before nftproxy does",
			Details: found,
			Remedy:  "restart nftproxy, which removes them; if they return, another kube-proxy runs in that mode",
		}
	case err != nil:
		return unknown(err)
	}
	return ok("no rules of other modes of kube-proxy")
}

// legacyTables returns the tables of iptables-legacy.
func legacyTables() (tables []explain.OtherTable, err error) {
	found, err := xtables.Read()
	for _, t := range found {
		tables = append(tables, explain.OtherTable{
			Name: "legacy table " + t.Family.String() + " " + t.Name, Family: t.Family, Base: t.Base,
			Table: legacyRules(t.Chains),
		})
	}
	return tables, err
}

// legacyRules are the rules of a legacy table by chain. They implement
// explain.Table.
type legacyRules map[string][]nft.Rule

func (r legacyRules) BaseChain(nft.HookPoint) (string, error) { return "", errors.ErrUnsupported }

func (r legacyRules) Rules(chain string) ([]nft.Rule, error) { return r[chain], nil }

func (r legacyRules) Set(name string) (*nft.Set, error) {
	return nil, fmt.Errorf("legacy tables have no sets, but a rule refers to %s", name)
}

func (r legacyRules) Row(set *nft.Set, _ nft.Tuple) (nft.Row, error) {
	return nft.Row{}, fmt.Errorf("legacy tables have no sets, but a rule refers to %s", set.Name)
}
