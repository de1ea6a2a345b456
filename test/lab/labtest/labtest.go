// Package labtest creates labs in tests. An error of package lab ends the
// test. The lab is closed when the test ends.
package labtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/must"
)

// New creates a lab without names.
func New(t testing.TB) *lab.Lab {
	t.Helper()
	return NewNamed(t, "")
}

// NewNamed creates a lab with a name.
func NewNamed(t testing.TB, name string) *lab.Lab {
	t.Helper()
	l, err := lab.New(name)
	must.NoError(t, err)
	must.Close(t, l)
	return l
}

// AddPod adds a pod with the next free addresses of the node.
func AddPod(t testing.TB, node *lab.Node, name string) *lab.Pod {
	t.Helper()
	return AddPodWith(t, node, lab.PodConfig{Name: name})
}

// AddPodWith adds a pod.
func AddPodWith(t testing.TB, node *lab.Node, config lab.PodConfig) *lab.Pod {
	t.Helper()
	pod, err := node.AddPodWith(config)
	must.NoError(t, err)
	return pod
}

// Serve starts TCP, UDP and SCTP servers at a port of each namespace.
func Serve(t testing.TB, port uint16, namespaces ...*lab.Namespace) {
	t.Helper()
	for _, ns := range namespaces {
		must.NoError(t, ns.Serve(port))
	}
}

// Run runs a program in a namespace and returns its standard output.
func Run(t testing.TB, at *lab.Namespace, program string, args ...string) string {
	t.Helper()
	cmd := at.Command(context.Background(), program, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s in %s: %v\n%s", program, strings.Join(args, " "), at.Name, err, &errs)
	}
	return string(out)
}

// Eventually calls check until it returns nil. It ends the test if the
// patience ends before.
func Eventually(t testing.TB, patience time.Duration, what string, check func() error) {
	t.Helper()
	const shortest, longest = 10 * time.Millisecond, 200 * time.Millisecond // between two checks, which can be costly
	for began := time.Now(); ; {
		err := check()
		if err == nil {
			return
		}
		waited := time.Since(began)
		if waited > patience {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(min(max(shortest, waited/20), longest))
	}
}

// LogTables attaches the rules of the nodes if the test has failed.
func LogTables(t testing.TB, nodes ...*lab.Node) {
	if !t.Failed() {
		return
	}
	const limit = 30_000
	for _, node := range nodes {
		out, err := node.Command(context.Background(), "nft", "list", "ruleset").CombinedOutput()
		if err != nil {
			out = fmt.Appendf(out, "%v\n", err)
		}
		if len(out) > limit && testing.Verbose() {
			out = append(out[:limit], "..."...)
		}
		Attach(t, "rules of "+node.Name, out)
	}
}

// Attach adds a long text that explains the failure of a test, such as a log.
// The test logs it with -v, with -short (emulated machines lose their files)
// and in CI. Otherwise it logs the name of a file with the text.
func Attach(t testing.TB, what string, text []byte) {
	if testing.Verbose() || testing.Short() || os.Getenv("CI") != "" {
		t.Logf("%s:\n%s", what, text)
		return
	}
	name := strings.NewReplacer("/", "-", " ", "-").Replace(t.Name() + "-" + what)
	file, err := os.CreateTemp("", name+"-*.txt")
	if err != nil {
		t.Error(err)
		return
	}
	defer file.Close()
	if _, err := file.Write(text); err != nil {
		t.Error(err)
	}
	t.Logf("%s: %s", what, file.Name())
}

// Subject returns the program under test in place of nftproxy: the name of one
// that the tests know, or a path. It is empty by default.
func Subject() string { return os.Getenv("SUBJECT") }

// SubjectMode returns the --proxy-mode of the subject.
func SubjectMode() string { return cmp.Or(os.Getenv("SUBJECT_MODE"), "nftables") }

// SubjectArgs returns further arguments of the subject.
func SubjectArgs() []string { return strings.Fields(os.Getenv("SUBJECT_ARGS")) }
