package differential

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Paths, relative to this folder.
const (
	repository = "../../.."
	programs   = repository + "/.cache/apiserver" // built by test/apiserver/build
)

var (
	seeds = flag.Uint64("seeds", 1, "number of random clusters")
	first = flag.Uint64("first", 1, "seed of the first cluster")
	steps = flag.Int("steps", 5, "number of changes of each cluster")
)

// The proxies, by the index of their side.
var proxies = [2]string{"kube-proxy", "nftproxy"}

func TestMain(m *testing.M) {
	flag.Parse()
	build := exec.Command("go", "build", "-trimpath", "-o", program("nftproxy-differential"), "./cmd/kube-proxy")
	build.Dir, build.Env = repository, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build nftproxy: %v\n%s", err, out)
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// program returns the path of a program.
func program(name string) string {
	path, err := filepath.Abs(filepath.Join(programs, name))
	if err != nil {
		panic(err) // no working directory
	}
	return path
}
