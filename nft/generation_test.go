package nft_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

func TestNextGeneration(t *testing.T) {
	for gen, want := range map[uint32]uint32{1: 2, 0xfffffffe: 0xffffffff, 0xffffffff: 1} {
		if got := nft.NextGeneration(gen); got != want {
			t.Errorf("NextGeneration(%d): got %d, want %d", gen, got, want)
		}
	}
}

// Chains that are read while another program commits belong to one
// generation, or the error is ErrGeneration.
func TestReadDuringCommits(t *testing.T) {
	reader := connect(t)
	writer := nstest.Open(t)
	const chains = 400 // so many that a dump has several pieces
	table := &nft.Table{Family: nft.IPv4, Name: "lb"}
	b := nft.NewBatch(table)
	b.AddTable("")
	for i := range chains {
		b.AddChain(&nft.Chain{Name: fmt.Sprintf("even-%d", i)})
	}
	commit(t, writer, b)

	stop, stopped := make(chan struct{}), make(chan error)
	go func() { // on any thread: the connection belongs to the namespace of the test
		var err error
		for from, to := "even", "odd"; err == nil; from, to = to, from {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			b.Reset()
			for i := range chains {
				b.DeleteChain(fmt.Sprintf("%s-%d", from, i))
				b.AddChain(&nft.Chain{Name: fmt.Sprintf("%s-%d", to, i)})
			}
			err = writer.Commit(b)
		}
		stopped <- err
	}()
	begin := generation(t, reader)
	for reads := 0; reads < 20 || generation(t, reader)-begin < 10; {
		found, err := reader.Chains(table)
		if errors.Is(err, nft.ErrGeneration) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		reads++
		even := 0
		for _, f := range found {
			if strings.HasPrefix(f.Name, "even-") {
				even++
			}
		}
		if len(found) != chains || (even != 0 && even != chains) {
			t.Fatalf("got %d chains, %d of them even; want %d, all or none even", len(found), even, chains)
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
}

// A snapshot that another program's commit interrupts is read again.
func TestSnapshotAgain(t *testing.T) {
	reader, writer := connect(t), nstest.Open(t)
	b := nft.NewBatch(&nft.Table{Family: nft.IPv4, Name: "lb"})
	b.AddTable("")
	reads := 0
	gen, err := reader.Snapshot(func() error {
		if reads++; reads == 1 {
			commit(t, writer, b)
		}
		return nil
	})
	if now := generation(t, reader); reads != 2 || gen != now || err != nil {
		t.Errorf("got generation %d after %d reads, %v; want %d after 2", gen, reads, err, now)
	}
}

// Requests and commits work after a dump that was abandoned.
func TestRequestAfterAbandonedDump(t *testing.T) {
	t.Parallel()
	c := connect(t)
	table := &nft.Table{Family: nft.IPv4, Name: "lb"}
	b := nft.NewBatch(table)
	b.AddTable("")
	const chains = 2000
	for i := range chains {
		b.AddChain(&nft.Chain{Name: fmt.Sprintf("chain-%d", i)})
	}
	commit(t, c, b)
	for range 3 {
		nft.BeginDump(c, unix.NFT_MSG_GETCHAIN)
		if found, err := c.Chains(table); len(found) != chains || err != nil {
			t.Fatalf("got %d chains, %v; want %d", len(found), err, chains)
		}
		nft.BeginDump(c, unix.NFT_MSG_GETCHAIN)
		generation(t, c)
		nft.BeginDump(c, unix.NFT_MSG_GETCHAIN)
		b.Reset()
		b.AddChain(&nft.Chain{Name: "chain-0"})
		commit(t, c, b)
	}
}
