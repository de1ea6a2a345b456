package leftovers

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// removeFromNFTables removes kube-proxy's chains and rules from the tables of iptables-nft.
func removeFromNFTables(ctx context.Context, report *Report) error {
	conn, err := nft.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	var errs []error
	for _, family := range families {
		for _, name := range tables {
			table := &nft.Table{Family: family, Name: name}
			if err := removeFromTable(ctx, conn, table, report); err != nil {
				errs = append(errs, fmt.Errorf("remove chains of kube-proxy from %s: %w", table, err))
			}
		}
	}
	return errors.Join(errs...)
}

// removeFromTable removes in one transaction. The kernel itself sees to it that nothing of others suffers: handles of rules are never
// given twice, and a chain that anything refers to cannot be deleted. So what was read need not be of one generation; what was refused is
// decided anew.
func removeFromTable(ctx context.Context, conn *nft.Conn, table *nft.Table, report *Report) error {
	inUse := make(map[string]bool)
	var err error
	for range attempts {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var c contents
		if c, err = readTable(conn, table); err != nil {
			if again(err) {
				continue
			}
			return err
		}
		p := makePlan(c, inUse)
		if err = commit(conn, table, p, inUse); err == nil {
			note(report, table.String(), p)
			return nil
		}
		if !again(err) {
			return err
		}
	}
	return err
}

// note adds what was done with a table to the report.
func note(report *Report, table string, p plan) {
	if p.removes() {
		report.removed(table + ": " + p.String())
	}
	for _, k := range p.kept {
		report.kept(table + ": " + k)
	}
}

// again says whether an error is none that another attempt would meet as well.
func again(err error) bool {
	for _, e := range []error{nft.ErrGeneration, nft.ErrUnknownOutcome, unix.EBUSY, unix.ENOENT} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// readTable reads the chains of a table, and the rules of those that are not kube-proxy's, of which there are few.
func readTable(conn *nft.Conn, table *nft.Table) (contents, error) {
	c := contents{table: table.Name}
	chains, err := conn.Chains(table)
	if err != nil {
		return c, err
	}
	for _, chain := range chains {
		c.chains = append(c.chains, chain.Name)
	}
	if len(ownedChains(table.Name, c.chains)) == 0 {
		return c, nil
	}
	for _, chain := range c.chains {
		if ownedChain(table.Name, chain) {
			continue
		}
		rules, err := conn.Rules(table, chain)
		if err != nil {
			return c, err
		}
		for _, r := range rules {
			if r.Goto != "" {
				c.rules = append(c.rules, rule{chain: chain, target: r.Goto, handle: r.Handle})
			}
		}
	}
	return c, nil
}

// commit carries out a plan in one transaction. Chains that turn out to be in use are added to inUse; the error is EBUSY then.
func commit(conn *nft.Conn, table *nft.Table, p plan, inUse map[string]bool) error {
	b := nft.NewBatch(table)
	for _, r := range p.rules {
		b.DeleteRule(r.chain, r.handle)
	}
	for _, chain := range p.flush {
		b.FlushChain(chain)
	}
	for _, chain := range p.delete {
		b.DeleteChain(chain)
	}
	err := conn.Commit(b)
	if refused := new(nft.CommitError); errors.As(err, &refused) {
		for _, problem := range refused.Problems {
			if problem.Op == "delete chain" && problem.Errno == unix.EBUSY {
				inUse[problem.Object] = true
			}
		}
	}
	return err
}
