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

// NFT runs a command of nft, and returns its output.
func NFT(t testing.TB, command string) string {
	t.Helper()
	out, err := nstest.NFT(t).Run(command)
	must.NoError(t, err)
	return out
}

// LoadNFT loads a file in nft syntax.
func LoadNFT(t testing.TB, text string) {
	t.Helper()
	must.NoError(t, nstest.NFT(t).Add(text))
}
