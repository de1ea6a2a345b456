package keep

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// Chains are deleted before the sets that they refer to. Objects that do not
// exist are not tried again.
func TestOrderOfLeftovers(t *testing.T) {
	u := make(leftovers)
	u.add(kindSet, "a")
	u.add(kindChain, "c", "b")
	want := []object{{kindChain, "b"}, {kindChain, "c"}, {kindSet, "a"}}
	if got := u.sorted(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	u.exclude(&nft.CommitError{Problems: []nft.Problem{
		{Object: "a", Errno: unix.ENOENT}, {Object: "b", Errno: unix.EBUSY},
	}})
	if got := u.sorted(); !slices.Equal(got, want[1:2]) {
		t.Errorf("without a missing set and a chain in use: got %v, want %v", got, want[1:2])
	}
	u.retry()
	if got := u.sorted(); !slices.Equal(got, want[:2]) {
		t.Errorf("without a missing set: got %v, want %v", got, want[:2])
	}
}
