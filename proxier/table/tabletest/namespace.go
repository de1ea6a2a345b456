package tabletest

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// NewNamespace moves the test to a network namespace of its own, which ends
// with the test's thread.
func NewNamespace(t testing.TB) {
	t.Helper()
	nstest.Enter(t)
}

// NFT runs the nft program with an input and returns its output.
func NFT(t testing.TB, input string, args ...string) string {
	t.Helper()
	cmd := exec.Command("nft", args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nft %s: %v\n%s\ninput:\n%s", strings.Join(args, " "), err, out, input)
	}
	return string(out)
}

// LoadNFT loads a file in nft syntax.
func LoadNFT(t testing.TB, text string) {
	t.Helper()
	NFT(t, text, "-f", "-")
}
