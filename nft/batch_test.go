package nft_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// A batch has no limit of its own: rows are spread over as many messages as it takes.
func TestLargeBatch(t *testing.T) {
	newNamespace(t)
	c := open(t)
	b, s := newServices(t, c, nft.IPv4)
	gen := generation(t, c)
	const rows = 100_000
	b.AddChain(&nft.Chain{Name: "other"})
	for i := range rows {
		r := service(s, nft.IPv4, i, "one")
		r.Comment = fmt.Sprintf("namespace-%d/service-%d:https", i, i)
		b.AddRow(r)
	}
	if b.Rows() != rows || b.Len() < rows*80 {
		t.Errorf("batch has %d rows, %d bytes", b.Rows(), b.Len())
	}
	commit(t, c, b)
	if now := generation(t, c); now != nft.NextGeneration(gen) {
		t.Errorf("the generation moved from %d to %d: not in one transaction", gen, now)
	}
	// The kernel says which rows it has by refusing the first one that is not there; reading all of them takes it long.
	b.Reset()
	for i := range rows {
		b.DeleteRow(service(s, nft.IPv4, i, ""))
	}
	b.DeleteRow(service(s, nft.IPv4, rows, ""))
	if p := refused(t, c.Commit(b)); len(p) != 1 {
		t.Fatalf("%d problems, want 1: %v", len(p), p)
	}
	b.Reset()
	for i := range rows {
		b.DeleteRow(service(s, nft.IPv4, i, ""))
	}
	commit(t, c, b)
	if got := elements(t, list(t), "map services"); len(got) != 0 {
		t.Errorf("%d rows are left", len(got))
	}
}

// An empty batch is no transaction.
func TestEmptyBatch(t *testing.T) {
	newNamespace(t)
	c := open(t)
	b, s := newServices(t, c, nft.IPv4)
	b.AddRow(service(s, nft.IPv4, 1, "one"))
	commit(t, c, b)
	gen := generation(t, c)

	empty := nft.NewBatch(&nft.Table{Family: nft.IPv4, Name: "lb"})
	check := func(name string, b *nft.Batch) {
		t.Helper()
		if !b.Empty() || b.Rows() != 0 {
			t.Errorf("%s batch has %d rows, empty: %v", name, b.Rows(), b.Empty())
		}
		commit(t, c, b)
		if now := generation(t, c); now != gen {
			t.Errorf("%s batch moved the generation from %d to %d", name, gen, now)
		}
	}
	check("new", empty)
	empty.Tag(1)
	empty.Expect(gen + 1)
	check("tagged", empty)
	b.Reset()
	check("reset", b)
	if b.Len() != 0 {
		t.Errorf("reset batch has %d bytes", b.Len())
	}

	if b.AddRow(service(s, nft.IPv4, 2, "one")); b.Empty() || b.Rows() != 1 {
		t.Errorf("batch of a row has %d rows, empty: %v", b.Rows(), b.Empty())
	}
	if b.DeleteRow(service(s, nft.IPv4, 2, "one")); b.Rows() != 2 {
		t.Errorf("batch of two rows has %d", b.Rows())
	}
	b.Reset()
	if b.AddChain(&nft.Chain{Name: "c"}); b.Empty() || b.Rows() != 0 {
		t.Errorf("batch of a chain has %d rows, empty: %v", b.Rows(), b.Empty())
	}
}

// A batch that was committed can be added to and committed again.
func TestCommitTwice(t *testing.T) {
	newNamespace(t)
	c := open(t)
	b, s := newServices(t, c, nft.IPv4)
	b.AddRow(service(s, nft.IPv4, 1, "one"))
	commit(t, c, b)
	n := b.Len()
	commit(t, c, b)
	if b.Len() != n {
		t.Errorf("a commit makes the batch grow from %d to %d bytes", n, b.Len())
	}
	b.AddRow(service(s, nft.IPv4, 2, "one"))
	b.DeleteChain("two")
	commit(t, c, b)
	listing := list(t)
	if got := elements(t, listing, "map services"); len(got) != 2 || strings.Contains(listing, "chain two") {
		t.Errorf("what was added after the first commit is not there:\n%s", listing)
	}
}

// After Reset a batch needs no new memory for as much as it had before.
func TestResetKeepsMemory(t *testing.T) {
	for _, f := range families {
		b := nft.NewBatch(&nft.Table{Family: f, Name: "lb"})
		s := services(f)
		sources := &nft.Set{Name: "sources", Key: nft.Types(nft.TypeAddr(f), nft.TypeInetService, nft.TypeAddr(f)), Interval: true}
		var rows []nft.Row
		for i := range 5000 {
			r := service(s, f, i, "one")
			r.Comment = "default/web:http"
			rows = append(rows, r)
			rows = append(rows, nft.Row{Set: sources, Key: nft.Tuple{}.Addr(vip(f, i)).Port(80)}.Prefix(prefixes(f)[4]))
		}
		fill := func() {
			b.Reset()
			for i, r := range rows {
				b.Tag(uint32(i / 3))
				b.AddRow(r)
			}
			for _, r := range rows {
				b.DeleteRow(r)
			}
		}
		fill()
		if n := testing.AllocsPerRun(3, fill); n != 0 {
			t.Errorf("%s: encoding %d rows again allocates %v times", f, len(rows), n)
		}
	}
}

// What has names that nft could not read again, or that are longer than netlink attributes can be, is never written.
func TestImpossibleObjects(t *testing.T) {
	newNamespace(t)
	c := open(t)
	long, longer := strings.Repeat("x", 256), strings.Repeat("x", 1<<16)
	key := nft.Types(nft.TypeIPv4Addr)
	many := make([]nft.Statement, 2000)
	for i := range many {
		many[i] = nft.MarkHas(1)
	}
	const noName = "name is no letter, _ or . followed by letters, digits or any of _ . / -"
	tests := []struct {
		name string
		fill func(b *nft.Batch)
		want string
	}{
		{"name of a chain", func(b *nft.Batch) { b.AddChain(&nft.Chain{Name: "a b"}) }, "add chain a b: invalid argument: " + noName},
		{"name of a set", func(b *nft.Batch) { b.AddSet(&nft.Set{Name: "1", Key: key}) }, "add set 1: invalid argument: " + noName},
		{"long name", func(b *nft.Batch) { b.AddChain(&nft.Chain{Name: long}) }, "add chain " + long + ": invalid argument: name is longer than 255 bytes"},
		{"longest name", func(b *nft.Batch) { b.DeleteChain(longer) }, "delete chain " + longer + ": invalid argument: longer than a netlink attribute can be"},
		{"rows of the longest name", func(b *nft.Batch) {
			b.AddRow(nft.Row{Set: &nft.Set{Name: longer, Key: key}, Key: nft.Tuple{}.Addr(vip(nft.IPv4, 1))})
			b.AddChain(&nft.Chain{Name: "c"})
		}, "add element " + longer + ": invalid argument: longer than a netlink attribute can be"},
		{"long rule", func(b *nft.Batch) {
			b.AddRules(&nft.Chain{Name: "c", Rules: []nft.Rule{nft.NewRule(many...)}})
		}, "add rule c " + nft.NewRule(many...).String() + ": invalid argument: longer than a netlink attribute can be"},
		{"set without a key", func(b *nft.Batch) { b.AddSet(&nft.Set{Name: "s"}) }, "add set s: invalid argument: key has no field"},
		{"ranges of numbers", func(b *nft.Batch) {
			b.AddSet(&nft.Set{Name: "s", Key: nft.Typeof(nft.Daddr(nft.IPv4), nft.Constant(0)), Interval: true})
		}, "add set s: invalid argument: the kernel compares ranges byte by byte, and a field is a number in host byte order"},
		{"types and expressions", func(b *nft.Batch) {
			b.AddSet(&nft.Set{Name: "s", Key: key, Data: nft.Typeof(nft.ThDport())})
		}, "add set s: invalid argument: nft declares key and data both by types or both by expressions"},
		{"too much about types", func(b *nft.Batch) {
			five := nft.Typeof(nft.Random(1, 0), nft.Random(1, 0), nft.Random(1, 0), nft.Random(1, 0), nft.Random(1, 0))
			b.AddSet(&nft.Set{Name: "s", Key: five, Data: five})
		}, "add set s: invalid argument: the kernel keeps no more than 256 bytes about types"},
	}
	for _, tt := range tests {
		b := nft.NewBatch(&nft.Table{Family: nft.IPv4, Name: "t"})
		b.AddTable("")
		tt.fill(b)
		if p := refused(t, c.Commit(b)); len(p) != 1 || p[0].String() != tt.want {
			t.Errorf("%s: got %.200v, want %.200s", tt.name, p, tt.want)
		}
		b.Reset()
		if err := c.Commit(b); err != nil {
			t.Errorf("%s: after Reset: %v", tt.name, err)
		}
	}
	b := nft.NewBatch(&nft.Table{Family: nft.IPv4, Name: "a table"})
	b.AddTable("")
	if p := refused(t, c.Commit(b)); p[0].String() != "add table a table: invalid argument: "+noName {
		t.Errorf("name of a table: %v", p)
	}
	if got := list(t); got != "" {
		t.Errorf("something was written:\n%s", got)
	}
}

// Messages are as the kernel wants them: whole, in order, the rows of each in less than 64 KiB.
func TestMessages(t *testing.T) {
	newNamespace(t)
	b := nft.NewBatch(&nft.Table{Family: nft.IPv6, Name: "lb"})
	s := services(nft.IPv6)
	for i := range 3000 {
		r := service(s, nft.IPv6, i, strings.Repeat("x", 255))
		r.Comment = strings.Repeat("c", nft.MaxComment)
		b.AddRow(r)
	}
	messages := 0
	for data := b.Sent(); len(data) > 0; messages++ {
		n := int(binary.NativeEndian.Uint32(data))
		if n < 16 || n > len(data) || n%4 != 0 || n > 1<<16 {
			t.Fatalf("message %d has %d bytes of %d", messages, n, len(data))
		}
		if seq := int(binary.NativeEndian.Uint32(data[8:])); seq != messages+1 {
			t.Errorf("message %d has sequence number %d", messages, seq)
		}
		typ, last := binary.NativeEndian.Uint16(data[4:]), len(data) == n
		switch {
		case messages == 0 && typ != unix.NFNL_MSG_BATCH_BEGIN, last != (typ == unix.NFNL_MSG_BATCH_END):
			t.Errorf("message %d has type %d", messages, typ)
		}
		data = data[n:]
	}
	if want := 2 + b.Len()/(60<<10) + 1; messages != want {
		t.Errorf("%d messages, want %d", messages, want)
	}
}
