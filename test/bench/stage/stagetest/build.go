// Package stagetest has what the tests of the benchmarks share.
package stagetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Repository is the path of the repository from the folder of a benchmark.
const Repository = "../../.."

// BuildProduct builds nftproxy for a test and returns its path.
func BuildProduct(t testing.TB) string {
	t.Helper()
	product := filepath.Join(t.TempDir(), "kube-proxy")
	build := exec.Command("go", "build", "-trimpath", "-o", product, "./cmd/kube-proxy")
	build.Dir, build.Env = Repository, append(os.Environ(), "CGO_ENABLED=0") // as in make build, for the build cache
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build nftproxy: %v\n%s", err, out)
	}
	return product
}
