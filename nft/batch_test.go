package nft_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// A batch has no size limit. It uses as many messages as it needs.
func TestLargeBatch(t *testing.T) {
	t.Parallel()
	c := connect(t)
	b, s := newServices(t, c, nft.IPv4)
	gen := generation(t, c)
	const rows = 100_000
	b.AddChain(&nft.Chain{Name: "other"})
	for i := range rows {
		r := service(s, nft.IPv4, i, "one")
		r.Comment = fmt.Sprintf("namespace-%d/service-%d:https", i, i)
		b.AddRow(r)
	}
	if b.RowCount() != rows || b.Len() < rows*80 {
		t.Errorf("got %d rows in %d bytes, want %d rows in at least %d", b.RowCount(), b.Len(), rows, rows*80)
	}
	commit(t, c, b)
	if got, want := generation(t, c), nft.NextGeneration(gen); got != want {
		t.Errorf("generation after one commit: got %d, want %d", got, want)
	}
	// Reading all rows takes long. If the kernel refuses only the row that is
	// missing, it has the others.
	deleteAll := func() {
		b.Reset()
		for i := range rows {
			b.DeleteRow(service(s, nft.IPv4, i, ""))
		}
	}
	deleteAll()
	b.DeleteRow(service(s, nft.IPv4, rows, ""))
	if p := refused(t, c.Commit(b)); len(p) != 1 {
		t.Fatalf("got %d problems, want 1: %v", len(p), p)
	}
	deleteAll()
	commit(t, c, b)
	if got := elements(t, list(t), "map services"); len(got) != 0 {
		t.Errorf("got %d rows after deletion, want 0", len(got))
	}
}

// A batch allocates nothing after Reset if it does not grow.
func TestResetKeepsMemory(t *testing.T) {
	for _, f := range families {
		b := nft.NewBatch(&nft.Table{Family: f, Name: "lb"})
		s, sources := serviceMap(f), sourceSet(f, "sources")
		var rows []nft.Row
		for i := range 5000 {
			r := service(s, f, i, "one")
			r.Comment = "default/web:http"
			source := nft.Row{Set: sources, Key: nft.Tuple{}.Addr(vip(f, i)).Port(80).Addr(vip(f, 1))}
			rows = append(rows, r, source)
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
			t.Errorf("%s: encoding %d rows again: got %v allocations, want 0", f, len(rows), n)
		}
	}
}

// Messages are complete and in order. Each has less than 64 KiB.
func TestMessages(t *testing.T) {
	b := nft.NewBatch(&nft.Table{Family: nft.IPv6, Name: "lb"})
	s := serviceMap(nft.IPv6)
	for i := range 3000 {
		r := service(s, nft.IPv6, i, strings.Repeat("x", 255))
		r.Comment = strings.Repeat("c", 127)
		b.AddRow(r)
	}
	messages := 0
	for data := b.Sent(); len(data) > 0; messages++ {
		n := int(binary.NativeEndian.Uint32(data))
		if n < 16 || n > len(data) || n%4 != 0 || n > 1<<16 {
			t.Fatalf("message %d: got length %d with %d bytes left", messages, n, len(data))
		}
		if seq := int(binary.NativeEndian.Uint32(data[8:])); seq != messages+1 {
			t.Errorf("message %d: got sequence number %d, want %d", messages, seq, messages+1)
		}
		typ, last := binary.NativeEndian.Uint16(data[4:]), len(data) == n
		switch {
		case messages == 0 && typ != unix.NFNL_MSG_BATCH_BEGIN, last != (typ == unix.NFNL_MSG_BATCH_END):
			t.Errorf("message %d: got type %d, last %v", messages, typ, last)
		}
		data = data[n:]
	}
	if want := 2 + b.Len()/(60<<10) + 1; messages != want {
		t.Errorf("got %d messages, want %d", messages, want)
	}
}
