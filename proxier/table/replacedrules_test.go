package table

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// withOtherConstant returns the expressions of a rule, one of which has another
// constant.
func withOtherConstant(t *testing.T, rule nft.Rule) []expr.Any {
	t.Helper()
	exprs := slices.Clone(rule.Expressions)
	for i, e := range slices.Backward(exprs) {
		switch e := e.(type) {
		case *expr.Immediate:
			exprs[i] = &expr.Immediate{Register: e.Register, Data: otherBytes(e.Data)}
		case *expr.Cmp:
			exprs[i] = &expr.Cmp{Op: e.Op, Register: e.Register, Data: otherBytes(e.Data)}
		case *expr.Bitwise:
			other := *e
			other.Xor = otherBytes(e.Xor)
			exprs[i] = &other
		case *expr.Numgen:
			exprs[i] = &expr.Numgen{Register: e.Register, Type: e.Type, Modulus: e.Modulus, Offset: e.Offset + 1}
		case *expr.Objref:
			other := ruleset.UnallocatedAddress.Counter().Name
			if e.Name == other {
				other = ruleset.UnknownPort.Counter().Name
			}
			exprs[i] = &expr.Objref{Type: e.Type, Name: other}
		case *expr.Reject:
			exprs[i] = &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: e.Code + 1}
		case *expr.Masq:
			exprs[i] = &expr.Masq{Random: true}
		case *expr.Payload:
			other := *e
			other.Offset ^= 2
			exprs[i] = &other
		case *expr.Verdict:
			if e.Chain == "" {
				continue
			}
			exprs[i] = &expr.Verdict{Kind: e.Kind, Chain: "drop-unallocated-address"}
		default:
			continue
		}
		return exprs
	}
	t.Fatalf("rule %s has no constant", rule.Text(nft.IPv4))
	return nil
}

func otherBytes(b []byte) []byte {
	b = slices.Clone(b)
	b[len(b)-1] ^= 1
	return b
}

// newTableOfAllRules returns a Table after a sync with service ports of all
// kinds.
func newTableOfAllRules(t *testing.T) *Table {
	t.Helper()
	config := localhostConfig()
	config.Rules.ServiceMetrics = ruleset.ServiceMetricsAll
	table := newTable(t, config, nft.IPv4)
	tabletest.PassSample(table)
	all := tabletest.Service("all", "10.96.0.77", func(s *cluster.Service) {
		s.AffinityTimeout = time.Hour
		s.InternalPolicy, s.ExternalIPs = cluster.PolicyLocal, tabletest.Addrs("192.0.2.77")
	})
	table.SetService(all)
	tabletest.SetEndpoint(table, all.Name, tabletest.Endpoint("10.244.0.77"))
	tabletest.Sync(t, table)
	return table
}

// chainsOf returns all chains that were committed.
func chainsOf(table *Table) []*nft.Chain {
	chains := slices.Clone(table.keeper.Program().Chains)
	for _, plan := range plans(table) {
		chains = append(chains, table.rules.Chains(plan)...)
		for _, r := range table.rules.Rows(nil, plan) {
			if class := table.rules.ClassOf(r); class.IsBalancer() {
				chain, _ := table.rules.Balancer(class)
				chains = append(chains, chain)
			}
		}
	}
	return chains
}

// replaceRule replaces rule i of a chain, which keeps its handle.
func replaceRule(t *testing.T, table *Table, chain string, i int, exprs []expr.Any) {
	t.Helper()
	ids, err := table.keeper.Kernel().RuleIDs(table.keeper.Program(), chain)
	if err != nil || len(ids) <= i {
		t.Fatalf("chain %s: got rules %v, %v", chain, ids, err)
	}
	var conn nftables.Conn
	of := &nftables.Table{Name: ruleset.TableName, Family: nftables.TableFamilyIPv4}
	conn.ReplaceRule(&nftables.Rule{Table: of, Chain: &nftables.Chain{Name: chain}, Handle: ids[i].Handle,
		Exprs: exprs})
	if err := conn.Flush(); err != nil {
		t.Fatalf("replace rule %d of chain %s: %v", i, chain, err)
	}
}

// A rule that was replaced in place keeps its handle. A comparison names it,
// and it is repaired: each rule of the program, of each balancer, and of
// session affinity, whether it has another verdict or another constant.
func TestReplacedRules(t *testing.T) {
	for name, replacement := range map[string]func(nft.Rule) []expr.Any{
		"verdict":  func(nft.Rule) []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} },
		"constant": func(r nft.Rule) []expr.Any { return withOtherConstant(t, r) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tabletest.NewNamespace(t)
			table := newTableOfAllRules(t)
			for _, c := range chainsOf(table) {
				for i, rule := range c.Rules {
					if testing.Short() && i > 0 { // on emulated machines, the first rule of each chain
						break
					}
					replaceRule(t, table, c.Name, i, replacement(rule))
					want := fmt.Sprintf("changed rule of chain %s: %s", c.Name, rule.Text(nft.IPv4))
					if got := Differences(diffSteps(t, table, "")); len(got) != 1 || !strings.HasPrefix(got[0], want) {
						t.Errorf("got differences %q, want %q", got, want)
					}
					repairs := repairsOf(table)
					scrubAll(t, table)
					if n := repairsOf(table) - repairs; n != 1 {
						t.Errorf("rule %s of chain %s: got %d repairs, want 1", rule.Text(nft.IPv4), c.Name, n)
					}
				}
			}
			checkDiff(t, table)
			checkTable(t, table)
		})
	}
}

// A rule that is replaced between a commit and its verification makes the sync
// fail, and the next one repairs it: after a rewrite, and after an update that
// writes a balancer.
func TestRuleReplacedAfterCommit(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Table)
		chain  string
	}{
		"rewrite": {func(table *Table) { table.keeper.Distrust(keep.RewriteFailure, "test") }, "services"},
		"update": {func(table *Table) {
			for i := range 9 { // no other Service has that many endpoints
				tabletest.SetEndpoint(table, web, tabletest.Endpoint(fmt.Sprintf("10.244.9.%d", i)))
			}
		}, "balance-12"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tabletest.NewNamespace(t)
			table := newSample(t)
			tt.change(table)
			k := injectFaults(table)
			k.OnCommit = func(_ *nft.Batch, commit func() error) error {
				err := commit()
				k.OnCommit = nil
				chains := chainsOf(table)
				for _, class := range ruleset.Balancers(12) {
					chain, _ := table.rules.Balancer(class)
					chains = append(chains, chain)
				}
				for _, c := range chains {
					if c.Name == tt.chain {
						replaceRule(t, table, c.Name, 0, withOtherConstant(t, c.Rules[0]))
						break
					}
				}
				return err
			}
			var d *keep.Damage
			if err := table.Sync(); !errors.As(err, &d) || d.Kind != keep.DamagedRule {
				t.Errorf("got %v, want damage of kind %s", err, keep.DamagedRule)
			}
			tabletest.Sync(t, table)
			checkTable(t, table)
			checkDiff(t, table)
		})
	}
}
