// Package stagetest has what the tests of the benchmarks share.
package stagetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nftproxy/nftproxy/test/bench/report"
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

// Run runs a benchmark and checks that it writes files.
func Run(t *testing.T, name, about string, b report.Benchmark, files []string, args ...string) *report.Report {
	t.Helper()
	folder := t.TempDir()
	r, err := report.Run(t.Context(), name, about, b, append(args, "--output="+folder), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if _, err := os.Stat(filepath.Join(folder, file)); err != nil {
			t.Error(err)
		}
	}
	return r
}
