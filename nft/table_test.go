package nft_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// The kernel deletes an owned table when its connection is closed.
func TestOwnedTable(t *testing.T) {
	c := connect(t)
	table := &nft.Table{Family: nft.IPv4, Name: "owned", Owned: true, Chains: []*nft.Chain{{Name: "chain"}}}
	b := nft.NewBatch(table)
	b.AddProgram()
	owner, err := nft.Open()
	if err != nil {
		t.Fatal(err)
	}
	err = owner.Commit(b)
	if !nstest.KernelAtLeast(t, 5, 12) {
		owner.Close()
		if !errors.Is(err, unix.EINVAL) {
			t.Errorf("commit: got %v, want EINVAL", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	foreign := nft.NewBatch(table)
	foreign.DeleteTable()
	if err := c.Commit(foreign); !errors.Is(err, unix.EPERM) {
		t.Errorf("delete by another program: got %v, want EPERM", err)
	}
	checkExists(t, c, table, true)
	if listing := list(t); !strings.Contains(listing, "flags owner") ||
		!strings.Contains(print(t, table), "flags owner") {
		t.Errorf("got no flag in\n%s\nor\n%s", listing, print(t, table))
	}
	owner.Close()
	checkExists(t, c, table, false)
}

func checkExists(t *testing.T, c *nft.Conn, table *nft.Table, want bool) {
	t.Helper()
	if _, ok, err := c.FindTable(table); err != nil || ok != want {
		t.Errorf("find %v: got %v, %v, want %v", table, ok, err, want)
	}
}
