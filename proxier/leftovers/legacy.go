package leftovers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
)

// errNoProgram says that nothing can remove rules from legacy tables.
var errNoProgram = errors.New("no program of iptables-legacy sees them that is in PATH")

// removeFromLegacy removes kube-proxy's chains and rules from the tables of iptables-legacy.
func removeFromLegacy(ctx context.Context, report *Report) error {
	var errs []error
	for _, family := range families {
		used, err := legacyTables(family)
		if err != nil {
			errs = append(errs, err)
		}
		for _, name := range used {
			table := "legacy table " + family.String() + " " + name
			chains, err := legacyChains(family, name)
			if err == nil && len(ownedChains(name, chains)) > 0 {
				err = removeFromLegacyTable(ctx, family, name, table, report)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("remove chains of kube-proxy from %s: %w", table, err))
			}
		}
	}
	return errors.Join(errs...)
}

// removeFromLegacyTable removes what is kube-proxy's from a table that has some of it, with the first programs that see it.
func removeFromLegacyTable(ctx context.Context, family nft.Family, name, table string, report *Report) error {
	for _, p := range findPrograms(ctx, family) {
		done, seen, err := p.remove(ctx, name)
		if err != nil {
			return err
		}
		if seen {
			note(report, table, done)
			return nil
		}
	}
	return fmt.Errorf("%w (%s): install iptables-legacy (%s), or restart the node", errNoProgram, os.Getenv("PATH"), programNames(family))
}

// programNames lists the programs that are looked for.
func programNames(family nft.Family) string {
	var names []string
	for _, p := range candidates(family) {
		names = append(names, strings.Join(p.save, " ")+" and "+strings.Join(p.restore, " "))
	}
	return strings.Join(names, ", or ")
}

// remove removes what is kube-proxy's from a table. seen says whether the programs see any of it.
func (p programs) remove(ctx context.Context, name string) (done plan, seen bool, err error) {
	for range attempts {
		var text string
		if text, err = p.save.run(ctx, "", "-t", name); err != nil {
			return plan{}, false, err
		}
		c := parseSave(name, text)
		if len(ownedChains(name, c.chains)) == 0 {
			return plan{}, seen, nil
		}
		seen = true
		todo := makePlan(c, nil)
		if todo.empty() {
			return todo, true, nil
		}
		if err = p.restoreTable(ctx, name, todo); err == nil {
			return todo, true, nil
		}
		if ctx.Err() != nil {
			break
		}
		// Between reading and writing others may have changed the table. Then nothing was done.
	}
	return plan{}, seen, err
}

// lockWait is how many seconds iptables-restore waits for another program that changes tables.
const lockWait = "5"

func (p programs) restoreTable(ctx context.Context, name string, todo plan) error {
	_, err := p.restore.run(ctx, restoreInput(name, todo), "--noflush", "--wait="+lockWait)
	return err
}
