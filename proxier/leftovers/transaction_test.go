package leftovers

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// A transaction of which the kernel refuses anything changes nothing, and the error names all that it refuses.
func TestCommitRefused(t *testing.T) {
	newNamespace(t)
	load(t, nft.IPv4, "nft", "")
	before := saved(t, nft.IPv4, "nft")
	tx := newTransaction(&nft.Table{Family: nft.IPv4, Name: "nat"})
	tx.flushChain("KUBE-POSTROUTING")
	tx.deleteChain("KUBE-SERVICES")
	tx.deleteChain("KUBE-MARK-MASQ")
	tx.deleteChain("KUBE-PROXY-CANARY")
	s, err := openSocket()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	err = s.commit(tx)
	refused := new(refusedError)
	if !errors.As(err, &refused) || len(refused.parts) != 2 || !errors.Is(err, unix.EBUSY) {
		t.Fatalf("error is %v", err)
	}
	if !strings.HasPrefix(err.Error(), "delete chain KUBE-SERVICES: device or resource busy (and 1 more)") {
		t.Errorf("error is %q", err)
	}
	if after := saved(t, nft.IPv4, "nft"); after != before {
		t.Errorf("what was refused changed the table to\n%s", after)
	}
}

// What another program deletes first is no error.
func TestAgain(t *testing.T) {
	for errno, want := range map[unix.Errno]bool{unix.EBUSY: true, unix.ENOENT: true, unix.EPERM: false, unix.EOPNOTSUPP: false} {
		if got := again(&refusedError{[]deletion{{errno: errno}}}); got != want {
			t.Errorf("%v is tried again: %v", errno, got)
		}
	}
}
