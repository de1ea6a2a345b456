package nft

import (
	"slices"
	"strings"
	"testing"
)

// Fprint sorts rows and keeps the order of sets.
func TestFprintOrder(t *testing.T) {
	key := Types(TypeInetService)
	a, b := &Set{Name: "a", Key: key}, &Set{Name: "b", Key: key, Data: Types(TypeInetProto)}
	row := func(s *Set, port uint16) Row { return Row{Set: s, Key: Tuple{}.Port(port), Data: Tuple{}.Proto(6)} }
	var out strings.Builder
	rows := []Row{row(b, 2), row(a, 300), row(a, 1), row(b, 1), row(a, 2)}
	before := slices.Clone(rows)
	if err := (&Table{Family: IPv6, Name: "t", Sets: []*Set{b, a}}).Fprint(&out, rows); err != nil {
		t.Fatal(err)
	}
	const want = `table ip6 t {

	map b {
		type inet_service : inet_proto
		elements = {
			1 : tcp,
			2 : tcp
		}
	}

	set a {
		type inet_service
		elements = {
			1,
			2,
			300
		}
	}
}
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
	if !slices.Equal(rows, before) {
		t.Errorf("rows of the caller: got %v, want %v", rows, before)
	}
}
