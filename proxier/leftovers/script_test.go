package leftovers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/xtables"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/script"
)

// TestScripts runs the scripts about a node with the rules of kube-proxy and of
// other programs. These are their steps, besides exec and other standard ones:
//
//	load VARIANT FILE [OPTION…]
//	                restores the tables of a file of testdata with iptables-restore
//	save VARIANT    prints the rules of both families as iptables-save does, sorted
//	find            prints the objects that a removal would remove
//	remove          removes the leftovers and prints the log
//	remove-process  removes them in a process that finds no programs
//	remove-locked   removes them within 0.1 s, while the legacy tables are locked
//	legacy-tables   prints the names of the legacy tables that exist
//
// The condition [ipvs] holds on a kernel with IPVS.
func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{
		Namespace: true,
		Condition: func(string) (bool, error) {
			_, err := os.Stat("/proc/net/ip_vs")
			return err == nil, nil
		},
		Setup: func(e *script.Env) (map[string]script.Command, error) {
			run(e.T, "", "ip", "link", "set", "lo", "up")
			return script.Steps(map[string]any{
				"load": func(variant, file string, options ...string) {
					family := nft.IPv4
					if strings.HasPrefix(file, "ipv6") {
						family = nft.IPv6
					}
					load(e.T, family, variant, file, options...)
				},
				"save": func(variant string) string {
					return saved(e.T, nft.IPv4, variant) + saved(e.T, nft.IPv6, variant)
				},
				"find": func() (string, error) {
					found, err := Find()
					slices.Sort(found)
					return strings.Join(found, "\n") + "\n", err
				},
				"remove": func() (string, error) { return removeLogged(context.Background()) },
				"remove-process": func() (string, error) {
					log, err := removalProcess(context.Background()).Output()
					return string(log), err
				},
				"remove-locked": removeWhileLocked,
				"legacy-tables": legacyTables,
			}), nil
		},
	})
}

// TestMain removes leftovers if it is called by removalProcess.
func TestMain(m *testing.M) {
	if os.Getenv(onlyRemove) == "" {
		os.Exit(m.Run())
	}
	log, err := removeLogged(context.Background())
	fmt.Print(log)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// onlyRemove is the environment variable of a test program that only removes
// the leftovers.
const onlyRemove = "LEFTOVERS_TEST_ONLY_REMOVE"

// removalProcess returns a command that removes the leftovers in the test's
// namespace. It has no PATH, because Remove must not run programs.
func removalProcess(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = []string{onlyRemove + "=1"}
	return cmd
}

// removeLogged removes the leftovers and returns the log.
func removeLogged(ctx context.Context) (string, error) {
	var log bytes.Buffer
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
	err := Remove(klog.NewContext(ctx, logger))
	message := regexp.MustCompile(`(?m)^I.*\] "(Removed|Kept) leftovers of another kube-proxy mode( that .* use)?"`)
	return message.ReplaceAllString(log.String(), "$1$2"), err
}

func removeWhileLocked() (string, error) {
	lock, err := os.OpenFile(xtables.LockFile, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	return removeLogged(ctx)
}

func legacyTables() (string, error) {
	ipv4, err := xtables.Names(nft.IPv4)
	ipv6, err6 := xtables.Names(nft.IPv6)
	return strings.Join(slices.Concat(ipv4, ipv6), "\n"), errors.Join(err, err6)
}

// rounds returns the number of repetitions of a test: n, or fewer with -short,
// which tests on emulated machines use.
func rounds(n int) int {
	if testing.Short() {
		return (n + 2) / 3
	}
	return n
}

// enter moves the test to a network namespace of its own.
func enter(t testing.TB) {
	t.Helper()
	nstest.Enter(t)
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

// iptables runs a program of a variant of iptables: "", "-save" or "-restore".
func iptables(t testing.TB, family nft.Family, variant, program, input string, args ...string) string {
	t.Helper()
	names := map[nft.Family]string{nft.IPv4: "iptables-", nft.IPv6: "ip6tables-"}
	if variant == "legacy" && program != "-save" {
		args = append([]string{"--wait=60"}, args...) // other tests use the same lock
	}
	return run(t, input, names[family]+variant+program, args...)
}

// load replaces tables by the tables of a file of testdata. The files ipv4.save
// and ipv6.save have the rules of kube-proxy's iptables mode and of other
// programs, *-without.save the rules of other programs only. *-others.save have
// rules of other programs with state in the kernel or much data.
// See fileOf for the names.
func load(t testing.TB, family nft.Family, variant, file string, args ...string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	iptables(t, family, variant, "-restore", string(data), args...)
}

// fileOf returns the name of a file of testdata. Its kind is "", "-without" or
// "-others".
func fileOf(family nft.Family, kind string) string {
	return map[nft.Family]string{nft.IPv4: "ipv4", nft.IPv6: "ipv6"}[family] + kind + ".save"
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
				return strings.Compare(strings.Fields(a)[1], strings.Fields(b)[1])
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

// remove removes the leftovers.
func remove(t testing.TB) {
	t.Helper()
	if _, err := removeLogged(t.Context()); err != nil {
		t.Fatal(err)
	}
}
