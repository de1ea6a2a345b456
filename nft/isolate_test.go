package nft_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

// Isolated, every kernel tells whose row it refuses, whether or not it says which row of a message that is.
func TestIsolate(t *testing.T) {
	newNamespace(t)
	c := open(t)
	m := &nft.Set{Name: "m", Key: nft.Types(nft.TypeIPv4Addr), Verdicts: true}
	table := &nft.Table{Family: nft.IPv4, Name: "t"}
	b := nft.NewBatch(table)
	b.Isolate()
	b.AddTable("")
	b.AddSet(m)
	for tag := range uint32(5) {
		b.Tag(tag + 1)
		row := nft.Row{Set: m, Key: nft.Tuple{}.Addr(netip.AddrFrom4([4]byte{10, 0, 0, byte(tag)}))}
		if tag == 3 {
			row.Verdict = nft.VerdictGoto("nowhere")
		}
		b.AddRow(row)
	}
	var refused *nft.CommitError
	if err := c.Commit(b); !errors.As(err, &refused) {
		t.Fatalf("got %v, want a CommitError", err)
	}
	if len(refused.Problems) != 1 || refused.Problems[0].Tag != 4 || refused.Problems[0].Object != "m 10.0.0.3" {
		t.Errorf("got %+v, want tag 4 and element m 10.0.0.3", refused.Problems)
	}
}
