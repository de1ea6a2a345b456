package leftovers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// inNamespace is the environment variable of a test program in its own
// network namespace.
const inNamespace = "LEFTOVERS_TEST_IN_NAMESPACE"

// TestMain runs the tests in a new network namespace, which protects the
// rules of the host. It requires root.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(onlyRemove) != "":
		os.Exit(removeAndExit())
	case os.Getenv(inNamespace) != "":
		os.Exit(m.Run())
	default:
		os.Exit(runAgain())
	}
}

func runAgain() int {
	runtime.LockOSThread() // Pdeathsig is sent when the thread ends
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	var exit *exec.ExitError
	switch err := cmd.Run(); {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	default:
		fmt.Fprintf(os.Stderr, "run the tests in a network namespace: %v\n", err)
		return 1
	}
}

// newNamespace moves the test to a new network namespace. The namespace ends
// with the test's thread, which ends with the test.
func newNamespace(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("create network namespace: %v", err)
	}
	run(t, "", "ip", "link", "set", "lo", "up")
}

// run runs a program in the test's namespace and returns its output.
func run(t testing.TB, input, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(input)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, stderr.String())
	}
	return string(out)
}

// variants are the variants of iptables.
var variants = []string{"nft", "legacy"}

// familyNames are the prefixes of the iptables programs.
var familyNames = map[nft.Family]string{nft.IPv4: "iptables", nft.IPv6: "ip6tables"}

// iptables runs an iptables program for a family: "-save", "-restore", or ""
// for iptables itself.
func iptables(t testing.TB, family nft.Family, variant, program, input string, args ...string) string {
	t.Helper()
	return run(t, input, familyNames[family]+"-"+variant+program, args...)
}

// load loads a file of testdata.
func load(t testing.TB, family nft.Family, variant, file string) {
	t.Helper()
	iptables(t, family, variant, "-restore", testdata(t, family, file))
}

// testdata returns a file for a family. The file "" has the rules of
// kube-proxy's iptables mode and of other programs, "-without" the rules of
// other programs only.
func testdata(t testing.TB, family nft.Family, file string) string {
	t.Helper()
	names := map[nft.Family]string{nft.IPv4: "ipv4", nft.IPv6: "ipv6"}
	data, err := os.ReadFile("testdata/" + names[family] + file + ".save")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// saved returns the output of iptables-save without comments and with tables
// and chains in sorted order.
func saved(t testing.TB, family nft.Family, variant string) string {
	t.Helper()
	var tables, current, chains []string
	for line := range strings.Lines(iptables(t, family, variant, "-save", "")) {
		switch line = strings.TrimSuffix(line, "\n"); {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, ":"):
			chain, _, _ := strings.Cut(line, " [") // counters follow
			chains = append(chains, chain)
		case line == "COMMIT":
			slices.Sort(chains)
			slices.SortStableFunc(current[1:], func(a, b string) int {
				return strings.Compare(chainOf(a), chainOf(b))
			})
			tables = append(tables, strings.Join(slices.Concat(current[:1], chains, current[1:]), "\n")+"\n")
			current, chains = nil, nil
		default:
			current = append(current, line)
		}
	}
	slices.Sort(tables)
	return strings.Join(tables, "")
}

func chainOf(line string) string { return strings.Fields(line)[1] }

// quiet is a context without a logger.
var quiet = klog.NewContext(context.Background(), klog.Logger{})

// remove removes the leftovers. It clears PATH, because Remove must not run
// programs.
func remove(t testing.TB) *removal {
	t.Helper()
	path := os.Getenv("PATH")
	os.Setenv("PATH", "")
	defer os.Setenv("PATH", path)
	r, err := removeAll(quiet, false)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
