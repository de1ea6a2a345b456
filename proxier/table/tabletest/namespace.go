package tabletest

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// NewNamespace moves the test to a network namespace of its own, which ends
// with the test's thread.
func NewNamespace(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("create a network namespace (needs root): %v", err)
	}
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
