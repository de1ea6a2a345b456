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

// Without CAP_NET_ADMIN the kernel refuses a transaction as a whole, and the
// system limits the size of the send buffer.
func TestWithoutCapability(t *testing.T) {
	t.Parallel()
	c := connect(t)
	b, s := newServices(t, c, nft.IPv4)
	before := list(t)
	var small, large, read error
	nstest.Unprivileged(t, func() {
		for i := 0; i == 0 || errors.Is(large, unix.EPERM); i++ {
			b.AddRow(service(s, nft.IPv4, i, "one"))
			if large = c.Commit(b); i == 0 {
				small = large
			}
			for range 1000 {
				b.AddRow(service(s, nft.IPv4, i, "one"))
			}
		}
		_, read = c.Generation()
	})
	want, text := nft.Problem{Op: "commit", Errno: unix.EPERM}, "commit table ip lb: operation not permitted"
	if p := refused(t, small); len(p) != 1 || p[0] != want || small.Error() != text {
		t.Errorf("got %v with problems %+v, want %s with %+v", small, p, text, want)
	}
	if !errors.Is(large, unix.EMSGSIZE) || !strings.HasPrefix(large.Error(), "commit table ip lb: send ") {
		t.Errorf("commit of a large batch: got %v, want EMSGSIZE", large)
	}
	if !errors.Is(read, unix.EPERM) {
		t.Errorf("Generation: got %v, want EPERM", read)
	}
	checkUnchanged(t, before)
}

func TestClosed(t *testing.T) {
	c := connect(t)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	b := nft.NewBatch(&nft.Table{Family: nft.IPv4, Name: "t"})
	b.AddTable("")
	if err := c.Commit(b); !errors.Is(err, unix.EBADF) || errors.Is(err, nft.ErrUnknownOutcome) {
		t.Errorf("Commit: got %v, want EBADF", err)
	}
	if _, err := c.Generation(); !errors.Is(err, unix.EBADF) {
		t.Errorf("Generation: got %v, want EBADF", err)
	}
}

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
