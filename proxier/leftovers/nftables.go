package leftovers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// removeFromNFTables removes kube-proxy's chains and rules from the tables of
// iptables-nft.
func removeFromNFTables(ctx context.Context, r *report) error {
	return eachNFTable(func(conn *nft.Conn, table *nft.Table) error {
		if err := removeFromNFTable(ctx, conn, table, r); err != nil {
			return fmt.Errorf("remove leftovers from %s: %w", table, err)
		}
		return nil
	})
}

// eachNFTable calls f for each table of iptables-nft that can have leftovers,
// whether it exists or not.
func eachNFTable(f func(*nft.Conn, *nft.Table) error) error {
	conn, err := nft.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	var errs []error
	for _, family := range families {
		for _, name := range tables {
			errs = append(errs, f(conn, &nft.Table{Family: family, Name: name}))
		}
	}
	return errors.Join(errs...)
}

// removeFromNFTable removes the leftovers from a table in one transaction. It
// does not check the generation, because the kernel protects the rules of
// other programs: it never reuses the handle of a rule, and it refuses to
// delete a chain that is in use. After a refusal, removeFromNFTable reads the
// table again.
func removeFromNFTable(ctx context.Context, conn *nft.Conn, table *nft.Table, r *report) error {
	inUse := make(map[string]bool)
	var err error
	for range attempts {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var c contents
		if c, err = readTable(conn, table); err != nil {
			if retriable(err) {
				continue
			}
			return err
		}
		p := makePlan(c, inUse)
		if err = commit(conn, table, p, inUse); err == nil {
			r.addTable(table.String(), p)
			return nil
		}
		if !retriable(err) {
			return err
		}
	}
	return err
}

// retriable reports whether another attempt can succeed after the error.
func retriable(err error) bool {
	again := []error{nft.ErrGeneration, nft.ErrUnknownOutcome, unix.EBUSY, unix.ENOENT}
	return slices.ContainsFunc(again, func(e error) bool { return errors.Is(err, e) })
}

// readTable reads the chains of a table and the rules of the chains that are
// no leftovers, which are few.
func readTable(conn *nft.Conn, table *nft.Table) (contents, error) {
	c := contents{table: table.Name}
	chains, err := conn.Chains(table)
	if err != nil {
		return c, err
	}
	for _, chain := range chains {
		c.chains = append(c.chains, chain.Name)
	}
	if len(leftoverChains(table.Name, c.chains)) == 0 {
		return c, nil
	}
	for _, chain := range c.chains {
		if isLeftoverChain(table.Name, chain) {
			continue
		}
		rules, err := conn.Rules(table, chain)
		if err != nil {
			return c, err
		}
		for _, r := range rules {
			if target := r.Target(); target != "" {
				c.rules = append(c.rules, rule{chain: chain, target: target, handle: r.Handle})
			}
		}
	}
	return c, nil
}

// commit carries out a plan in one transaction. If a chain is in use, it adds
// the chain to inUse and returns an error that matches EBUSY.
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
