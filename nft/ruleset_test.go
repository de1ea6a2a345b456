package nft_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/must"
)

// list returns the ruleset as nft lists it, without counters and times.
func list(t testing.TB) string {
	t.Helper()
	return nstest.RunNFT(t, "list ruleset")
}

// load replaces the ruleset with the content of a file.
func load(t testing.TB, file string) {
	t.Helper()
	must.NoError(t, nstest.NFT(t).Load(file))
}

// print returns the file that Fprint writes.
func print(t testing.TB, table *nft.Table, rows ...nft.Row) string {
	t.Helper()
	var s strings.Builder
	if err := table.Fprint(&s, rows); err != nil {
		t.Fatal(err)
	}
	return s.String()
}

// checkFile fails the test if nft lists another ruleset than want after it
// loaded the file that Fprint writes.
func checkFile(t testing.TB, want string, table *nft.Table, rows ...nft.Row) {
	t.Helper()
	load(t, print(t, table, rows...))
	if got := list(t); got != want {
		t.Fatalf("after loading the file of Fprint: got\n%s\nwant\n%s", got, want)
	}
}

// checkUnchanged fails the test if the ruleset differs from an earlier
// listing.
func checkUnchanged(t testing.TB, before string) {
	t.Helper()
	if after := list(t); after != before {
		t.Errorf("ruleset changed: got\n%s\nwant\n%s", after, before)
	}
}

// asListed returns nft text as nft prints it on this host. Without
// /etc/protocols it prints the numbers of protocols.
func asListed(text string) string {
	if _, err := os.Stat("/etc/protocols"); err == nil {
		return text
	}
	numbers := map[string]string{"tcp": "6", "udp": "17", "sctp": "132"}
	words := strings.Split(text, " ")
	for i, w := range words {
		isField := i+1 < len(words) && slices.Contains([]string{"dport", "reset", "flags"}, words[i+1])
		if n, ok := numbers[w]; ok && !isField {
			words[i] = n
		}
	}
	return strings.Join(words, " ")
}
