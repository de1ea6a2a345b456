package leftovers

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// nfTables removes kube-proxy's chains and rules from the tables of
// iptables-nft.
func (r *removal) nfTables(ctx context.Context) error {
	conn, err := nft.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	var errs []error
	for _, family := range families {
		for _, name := range tables {
			table := &nft.Table{Family: family, Name: name}
			errs = append(errs, r.failed(table.String(), r.nfTable(ctx, conn, table)))
		}
	}
	return errors.Join(errs...)
}

// nfTable removes the leftovers from a table in one transaction, if the table
// exists. It does not check the generation, because the kernel protects the
// rules of other programs: it never reuses the handle of a rule, and it refuses
// to delete a chain that is in use. After a refusal, nfTable reads the table
// again.
func (r *removal) nfTable(ctx context.Context, conn *nft.Conn, table *nft.Table) (err error) {
	inUse := make(map[string]bool)
	for range attempts {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var p plan
		if p, err = r.tryNFTable(conn, table, inUse); err == nil {
			r.addTable(table.String(), p)
		}
		if err == nil || !retriable(err) {
			return err
		}
	}
	return err
}

// tryNFTable makes one attempt of nfTable and returns the plan that was carried
// out. See commit for inUse.
func (r *removal) tryNFTable(conn *nft.Conn, table *nft.Table, inUse map[string]bool) (p plan, err error) {
	found, err := conn.Chains(table)
	if err != nil {
		return p, err
	}
	var chains []string
	for _, chain := range found {
		chains = append(chains, chain.Name)
	}
	rules := func(chain string) ([]nft.Rule, error) { return conn.Rules(table, chain) }
	if p, err = makePlan(table.Name, chains, rules, inUse); err != nil || r.findOnly {
		return p, err
	}
	return p, commit(conn, table, p, inUse)
}

// retriable reports whether another attempt can succeed after the error.
func retriable(err error) bool {
	again := []error{nft.ErrGeneration, nft.ErrUnknownOutcome, unix.EBUSY, unix.ENOENT}
	return slices.ContainsFunc(again, func(e error) bool { return errors.Is(err, e) })
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
