package keep

import "github.com/nftproxy/nftproxy/nft"

// An object `ct timeout` cannot be changed. One that differs is deleted, with
// the rules that refer to it, and added again with the same name in the same
// transaction, so that packets always meet one. When the kernel deletes an
// object, it walks all connections, so a rewrite keeps those that are equal.
// Only chains of the program that are not base chains refer to such objects.

// writeTimeouts writes the objects that are new or differ. It returns the
// chains that lost their rules, unless the program has others now.
func (tx *transaction) writeTimeouts(before *nft.Table) (again []*nft.Chain) {
	lost := make(map[*nft.Chain]bool)
	for _, want := range tx.program.CtTimeouts {
		has := tx.findTimeout(want.Name)
		if has != nil && has.Matches(want) {
			continue
		}
		if has != nil {
			for _, c := range before.Chains {
				if refersTo(c, want) {
					lost[c] = true
					tx.to.FlushChain(c.Name)
				}
			}
			tx.replaced = append(tx.replaced, want.Name)
			tx.to.DeleteCtTimeout(want.Name)
		}
		tx.to.AddCtTimeout(want)
	}
	for old := range lost {
		if c := findChain(tx.program, old.Name); c != nil && c.Equal(old) {
			again = append(again, c)
		}
	}
	return again
}

// findTimeout returns the object with a name that the kernel has before the
// transaction, nil if there is none.
func (tx *transaction) findTimeout(name string) *nft.CtTimeout {
	if tx.whole {
		if f, ok := tx.found[object{kindTimeout, name}]; ok {
			return &f.timeout
		}
		return nil
	}
	for _, c := range tx.have.program.CtTimeouts {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func refersTo(chain *nft.Chain, timeout *nft.CtTimeout) bool {
	for _, r := range chain.Rules {
		if r.Sets(timeout) {
			return true
		}
	}
	return false
}
