// Package benchmarktest helps to test the commands that measure.
package benchmarktest

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Repository is the project's folder, as seen from that of a command.
const Repository = "../../.."

// BuildProxy builds nftproxy and returns the path of the program.
func BuildProxy(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "nftproxy")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "./cmd/kube-proxy")
	build.Dir = Repository
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build nftproxy: %v\n%s", err, out)
	}
	return program
}
