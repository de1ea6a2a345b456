package apiserver

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// Paths, relative to this folder.
const (
	repository = "../.."
	programs   = repository + "/.cache/apiserver" // built by `build`
)

// record makes TestContract record kube-proxy's answers.
var record = flag.Bool("record", false, "rewrite testdata/kube-proxy-VERSION")

// attempts is the number of connections for which the step pass waits.
var attempts = flag.Int64("attempts", 100, "number of connections for which the step pass of scripts waits")

// The programs that can be the subject.
const (
	upstream = "kube-proxy"
	product  = "nftproxy"
)

// subjectName returns the name of the proxy under test.
func subjectName() string {
	return cmp.Or(labtest.Subject(), product)
}

// foreign reports whether the proxy under test is any program, which may serve
// without tables of nftables.
func foreign() bool { return filepath.IsAbs(subjectName()) }

func TestMain(m *testing.M) {
	flag.Parse()
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	code := m.Run()
	if err := closeIdle(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 2
	}
	os.Exit(code)
}

// prepare checks for the programs and builds the product.
func prepare() error {
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl", upstream} {
		if _, err := os.Stat(program(name)); err != nil {
			return fmt.Errorf("%w: build it with `test/apiserver/build .cache/apiserver`", err)
		}
	}
	switch name := subjectName(); {
	case name == upstream, filepath.IsAbs(name):
		return nil
	case name == product:
		if err := os.MkdirAll(filepath.Dir(program(product)), 0o755); err != nil {
			return err
		}
		build := exec.Command("go", "build", "-trimpath", "-o", program(product), "./cmd/kube-proxy")
		build.Dir, build.Env = repository, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", product, err, out)
		}
		return nil
	}
	return fmt.Errorf("SUBJECT %q: want %s, %s or an absolute path", subjectName(), product, upstream)
}

// program returns the path of a program. The name can be an absolute path. The
// file of the product is named kube-proxy: as nftproxy, it is another command.
func program(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	if name == product {
		name = filepath.Join("product", "kube-proxy")
	}
	path, err := filepath.Abs(filepath.Join(programs, name))
	if err != nil {
		panic(err) // no working directory
	}
	return path
}
