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

// inNamespace is set in the environment of a test program that runs in a network namespace of its own.
const inNamespace = "LEFTOVERS_TEST_IN_NAMESPACE"

// TestMain runs the tests in a fresh network namespace, so that the host's rules are out of their reach. It takes root.
func TestMain(m *testing.M) {
	if os.Getenv(inNamespace) != "" {
		os.Exit(m.Run())
	}
	os.Exit(runAgain())
}

func runAgain() int {
	runtime.LockOSThread() // Pdeathsig counts from the end of the thread
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

// newNamespace puts the test into a network namespace of its own. The test's thread ends with the test, and the namespace with it.
func newNamespace(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	run(t, "", "ip", "link", "set", "lo", "up")
}

// run runs a program in the test's namespace and returns what it prints.
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

// variants are the two kinds of iptables.
var variants = []string{"nft", "legacy"}

// familyNames are the beginnings of the names of iptables' programs.
var familyNames = map[nft.Family]string{nft.IPv4: "iptables", nft.IPv6: "ip6tables"}

// iptables runs a program of iptables for a family: "-save", "-restore", or "" for iptables itself.
func iptables(t testing.TB, family nft.Family, variant, program, input string, args ...string) string {
	t.Helper()
	return run(t, input, familyNames[family]+"-"+variant+program, args...)
}

// load puts a file of testdata into the tables.
func load(t testing.TB, family nft.Family, variant, file string) {
	t.Helper()
	iptables(t, family, variant, "-restore", testdata(t, family, file))
}

// testdata returns a file for a family: "" has the rules of a node with kube-proxy in iptables mode and of other programs, "-without" those of
// the other programs only.
func testdata(t testing.TB, family nft.Family, file string) string {
	t.Helper()
	names := map[nft.Family]string{nft.IPv4: "ipv4", nft.IPv6: "ipv6"}
	data, err := os.ReadFile("testdata/" + names[family] + file + ".save")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// saved returns what iptables-save prints, without what differs from run to run: comments, and the order of tables and chains.
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
			slices.SortStableFunc(current[1:], func(a, b string) int { return strings.Compare(chainOf(a), chainOf(b)) })
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

// quiet is a context whose logger says nothing.
var quiet = klog.NewContext(context.Background(), klog.Logger{})

// remove runs Remove, which must succeed, and without any program.
func remove(t testing.TB) Report {
	t.Helper()
	path := os.Getenv("PATH")
	os.Setenv("PATH", "")
	defer os.Setenv("PATH", path)
	report, err := Remove(quiet)
	if err != nil {
		t.Fatal(err)
	}
	return report
}
