package follow

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Above the limit of rows, each namespace has a share. A namespace with few
// service ports has all of them, a namespace with many the first ones by name.
func TestServiceConnectionsShare(t *testing.T) {
	s := &serviceConnections{max: 10, ports: make(map[portKey]*portConnections)}
	add := func(namespace, name string, frontends int) {
		service := cluster.ServiceName{Namespace: namespace, Name: name}
		s.ports[portKey{PortName: service.WithPort("")}] = &portConnections{
			labels: []string{namespace, name}, frontends: make([]*frontendConnections, frontends),
		}
	}
	expect := func(wantLeftOut int, want ...string) {
		t.Helper()
		ports, leftOut := s.counted()
		var got []string
		for _, p := range ports {
			got = append(got, strings.Join(p.labels, "/"))
		}
		if slices.Sort(got); !slices.Equal(got, want) || leftOut != wantLeftOut {
			t.Errorf("got %v, and %d left out, want %v, and %d", got, leftOut, want, wantLeftOut)
		}
	}
	expect(0)
	for i := range 5 {
		add("few", fmt.Sprint(i), 2)
	}
	expect(0, "few/0", "few/1", "few/2", "few/3", "few/4")
	clear(s.ports)
	add("few", "a", 1)
	add("few", "b", 2)
	for i := range 100 {
		add("many", fmt.Sprintf("%02d", i), 3)
	}
	add("many", "03", 1)
	expect(97, "few/a", "few/b", "many/00", "many/01", "many/03")
}

// Whichever rows come and go, those that stay keep their numbers.
func TestSetRows(t *testing.T) {
	set, r := &nft.Set{Name: "service-connections"}, rand.New(rand.NewPCG(1, 2))
	p, known := &portConnections{}, make(map[nft.Row]*frontendConnections)
	for range 1000 {
		var rows []nft.Row
		for _, n := range r.Perm(8)[:r.IntN(8)] {
			comment := []string{"ns/a", "ns/b"}[r.IntN(10)/9]
			rows = append(rows, nft.Row{Set: set, Key: nft.Tuple{}.Integer(uint32(n)), Comment: comment})
		}
		if r.IntN(2) == 0 {
			slices.SortFunc(rows, nft.Row.Compare)
		}
		p.setRows(rows)
		now := make(map[nft.Row]*frontendConnections)
		for i, f := range p.frontends {
			if before := known[rows[i]]; f.row != rows[i] || f.port != p || before != nil && f != before {
				t.Fatalf("row %v: got %v, had %v", rows[i], f, before)
			}
			now[f.row] = f
		}
		if known = now; len(p.frontends) != len(rows) {
			t.Fatalf("got %d rows, want %d", len(p.frontends), len(rows))
		}
	}
}
