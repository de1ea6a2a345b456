package tabletest

import (
	"testing"

	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/must"
)

// NewNamespace moves the test to a network namespace of its own, which ends
// with the test's thread.
func NewNamespace(t testing.TB) {
	t.Helper()
	nstest.Enter(t)
}

// LoadNFT loads a file in nft syntax.
func LoadNFT(t testing.TB, text string) {
	t.Helper()
	must.NoError(t, nstest.NFT(t).Add(text))
}
