package differential

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// Paths, relative to this folder.
const (
	repository = "../../.."
	programs   = repository + "/.cache/apiserver" // built by test/apiserver/build
)

var (
	seeds = flag.Uint64("seeds", 2, "number of random clusters")
	first = flag.Uint64("first", 1, "seed of the first cluster")
	steps = flag.Int("steps", 3, "number of states of each cluster")
)

// proxies returns the names of the proxies, by the index of their side.
func proxies() [2]string {
	if labtest.Subject() != "" {
		return [2]string{"kube-proxy", "subject"}
	}
	return [2]string{"kube-proxy", "nftproxy"}
}

// subject returns the path of the proxy that is compared with kube-proxy. It
// builds nftproxy unless there is another one.
func subject(t testing.TB) string {
	t.Helper()
	if path := labtest.Subject(); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "kube-proxy")
	build := exec.Command("go", "build", "-trimpath", "-o", path, "./cmd/kube-proxy")
	build.Dir, build.Env = repository, append(os.Environ(), "CGO_ENABLED=0") // as in make build, for the build cache
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build nftproxy: %v\n%s", err, out)
	}
	return path
}

// program returns the path of a program.
func program(name string) string {
	path, err := filepath.Abs(filepath.Join(programs, name))
	if err != nil {
		panic(err) // no working directory
	}
	return path
}
