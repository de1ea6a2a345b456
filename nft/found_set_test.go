package nft_test

import (
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

// FindSet returns a description with which rows can be read.
func TestFindSet(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		sets := []*nft.Set{
			serviceMap(f), endpointMap(f), addrSet(f, "addrs"), clientSet(f, "clients"), sourceSet(f, "sources"),
		}
		table := &nft.Table{Family: f, Name: "lb", Sets: sets, Chains: []*nft.Chain{{Name: "one"}}}
		row := service(sets[0], f, 1, "one")
		commitTable(t, c, table, row)
		for _, want := range sets {
			got, err := c.FindSet(table, want.Name)
			if err != nil {
				t.Fatal(err)
			}
			if got.Name != want.Name || got.Key.Size() != want.Key.Size() || got.Data.Size() != want.Data.Size() ||
				got.Verdicts != want.Verdicts || got.Dynamic != want.Dynamic {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
		services, err := c.FindSet(table, sets[0].Name)
		if err != nil {
			t.Fatal(err)
		}
		found, err := c.FindRows(table, []nft.Row{{Set: services, Key: nft.Tuple{}.Raw(row.Key.Bytes())}})
		if err != nil || found[0].String() != row.String() {
			t.Errorf("got row %v, %v; want %v", found, err, row)
		}
		if missing, err := c.FindSet(table, "missing"); missing != nil || err != nil {
			t.Errorf("missing set: got %+v, %v", missing, err)
		}
	})
}
