package nft_test

import (
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

	"github.com/nftproxy/nftproxy/nft"
)

// inNamespace is set in the environment of a test program that runs in a network namespace of its own.
const inNamespace = "NFT_TEST_IN_NAMESPACE"

// TestMain runs the tests and examples in a fresh network namespace, so that the host's tables are out of their reach: without root in a
// user namespace, where the kernel takes all but the largest batch.
func TestMain(m *testing.M) {
	if os.Getenv(inNamespace) != "" {
		os.Exit(m.Run())
	}
	os.Exit(runAgain())
}

func runAgain() int {
	runtime.LockOSThread() // Pdeathsig counts from the end of the thread
	program, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := exec.Command(program, os.Args[1:]...)
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
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

// newNamespace puts the test into a network namespace of its own. The test's thread ends with the test, and
// the namespace with it.
func newNamespace(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
}

// open returns a connection to the nf_tables of the test's namespace.
func open(t testing.TB) *nft.Conn {
	t.Helper()
	c, err := nft.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func commit(t testing.TB, c *nft.Conn, b *nft.Batch) {
	t.Helper()
	if err := c.Commit(b); err != nil {
		t.Fatal(err)
	}
}

// commitTable writes a table with its program and rows.
func commitTable(t testing.TB, c *nft.Conn, table *nft.Table, rows ...nft.Row) {
	t.Helper()
	b := nft.NewBatch(table)
	b.AddProgram()
	for _, r := range rows {
		b.AddRow(r)
	}
	commit(t, c, b)
}

// runNFT runs the nft program on input and returns what it prints.
func runNFT(t testing.TB, input string, args ...string) string {
	t.Helper()
	cmd := exec.Command("nft", args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nft %s: %v\n%s\ninput:\n%s", strings.Join(args, " "), err, out, input)
	}
	return string(out)
}

func list(t testing.TB) string {
	t.Helper()
	return runNFT(t, "", "list", "ruleset")
}

// load replaces the ruleset by what a file says.
func load(t testing.TB, file string) {
	t.Helper()
	runNFT(t, "flush ruleset\n"+file, "-f", "-")
}

// print returns the table with these rows in nft syntax.
func print(t testing.TB, table *nft.Table, rows ...nft.Row) string {
	t.Helper()
	var s strings.Builder
	if err := table.Fprint(&s, rows); err != nil {
		t.Fatal(err)
	}
	return s.String()
}

// block returns what a listing has between the first line with head in it and the brace that ends it, line by line.
func block(t testing.TB, listing, head string) []string {
	t.Helper()
	_, after, ok := strings.Cut(listing, head+" {\n")
	if !ok {
		t.Fatalf("no %q in\n%s", head, listing)
	}
	indent := "\n\t}"
	body, _, _ := strings.Cut("\n"+after, indent)
	lines := strings.Split(strings.TrimPrefix(body, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return slices.DeleteFunc(lines, func(s string) bool { return s == "" })
}

// elements returns the elements that a listing has of a set or map, as `map services`.
func elements(t testing.TB, listing, set string) []string {
	t.Helper()
	_, after, ok := strings.Cut(strings.Join(block(t, listing, set), " "), "elements = { ")
	if !ok {
		return nil
	}
	return strings.Split(strings.TrimSuffix(after, " }"), ", ")
}

// asListed returns nft text as the nft of this host prints it: without /etc/protocols it has numbers for protocols.
func asListed(text string) string {
	if _, err := os.Stat("/etc/protocols"); err == nil {
		return text
	}
	numbers := map[string]string{"tcp": "6", "udp": "17", "sctp": "132"}
	words := strings.Split(text, " ")
	for i, w := range words {
		isField := i+1 < len(words) && (words[i+1] == "dport" || words[i+1] == "reset")
		if n, ok := numbers[w]; ok && !isField {
			words[i] = n
		}
	}
	return strings.Join(words, " ")
}

var families = []nft.Family{nft.IPv4, nft.IPv6}

// eachFamily runs a test for both families, each in a network namespace of its own.
func eachFamily(t *testing.T, test func(t *testing.T, f nft.Family)) {
	for _, f := range families {
		t.Run(f.String(), func(t *testing.T) {
			newNamespace(t)
			test(t, f)
		})
	}
}
