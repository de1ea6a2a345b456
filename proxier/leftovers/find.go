package leftovers

import (
	"errors"
	"fmt"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/xtables"
)

// Find returns the objects that Remove would remove or flush, and changes
// nothing. It returns those that it found together with an error.
func Find() ([]string, error) {
	var r report
	err := errors.Join(findInNFTables(&r), findInLegacy(&r), findIPVS(&r), findSets(&r))
	return r.removed, err
}

func findInNFTables(r *report) error {
	return eachNFTable(func(conn *nft.Conn, table *nft.Table) error {
		c, err := readTable(conn, table)
		if err == nil {
			r.addTable(table.String(), makePlan(c, nil))
		}
		return err
	})
}

func findInLegacy(r *report) error {
	return eachLegacy(func(family nft.Family, name string) error {
		t, err := xtables.ReadTable(family, name)
		var c contents
		if err == nil {
			c, err = legacyContents(name, &t)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", legacyName(family, name), err)
		}
		r.addTable(legacyName(family, name), makePlan(c, nil))
		return nil
	})
}

func findIPVS(r *report) error {
	link, err := findIPVSInterface()
	if link != nil {
		r.addRemoved("interface " + ipvsInterface)
	}
	return err
}

func findSets(r *report) error {
	names, err := leftoverSets()
	if len(names) > 0 {
		r.addRemoved(count(len(names), "IP set"))
	}
	return err
}
