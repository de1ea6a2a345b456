package nft_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/notation"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// The listing of nft has comments as the kernel stores them, and loads again.
func TestComments(t *testing.T) {
	t.Parallel()
	c := connect(t)
	x := strings.Repeat("x", 200)
	comments := []string{
		"", "default/web:http", "grün & 緑 😀", `say "hello" \ 'there' \n`, "a\x00b", "tab\tand # { } ; $x",
		x[:127], x[:126] + "ü", x[:125] + "üx", x[:124] + "😀", x,
	}
	chain := &nft.Chain{Name: "c"}
	table := &nft.Table{Family: nft.IPv4, Name: "t", Comment: comments[3], Chains: []*nft.Chain{chain}}
	var rows []nft.Row
	for i, comment := range comments {
		s := addrSet(nft.IPv4, fmt.Sprint("s", i))
		s.Comment = comment
		table.Sets = append(table.Sets, s)
		rows = append(rows, nft.Row{Set: s, Key: nft.Tuple{}.Addr(vip(nft.IPv4, 1)), Comment: comment})
		chain.Rules = append(chain.Rules, nft.NewRule(nft.Drop()).WithComment(comment))
	}
	nstest.Commit(t, c, table, rows...)
	listing := list(t)
	for _, comment := range comments[1:] {
		// Of a set, its element and a rule; the last one is cut like another.
		want := fmt.Sprintf(`comment "%s"`, notation.Comment(comment))
		if n := strings.Count(listing, want); n < 3 {
			t.Errorf("got %d times %s, want 3 in\n%s", n, want, listing)
		}
	}
	if got, want := strings.Count(listing, "comment"), 1+3*len(comments[1:]); got != want {
		t.Errorf("got %d comments, want %d in\n%s", got, want, listing)
	}
	load(t, listing)
	checkUnchanged(t, listing)
	checkFile(t, listing, table, rows...)
}

func TestCompareRows(t *testing.T) {
	key := nft.Types(nft.TypeInetService)
	a, b := &nft.Set{Name: "a", Key: key}, &nft.Set{Name: "b", Key: key}
	port := func(p uint16) nft.Tuple { return nft.Tuple{}.Port(p) }
	rows := []nft.Row{
		{Set: a, Key: port(2)}, {Set: a, Key: port(256)}, {Set: b, Key: port(1)},
		{Set: b, Key: port(0).Port(0)},
	}
	for i, r := range rows {
		for j, o := range rows {
			if got := r.Compare(o); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("Compare of rows %d and %d: got %d", i, j, got)
			}
		}
	}
}
