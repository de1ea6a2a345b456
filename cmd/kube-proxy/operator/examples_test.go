package operator_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// The examples of docs/commands.md are the output of the commands on a node n1
// with the Services of testdata/shop, after the second endpoint became ready.
func TestExamples(t *testing.T) {
	tabletest.NewNode(t)
	dir := t.TempDir()
	manifests, err := os.ReadFile("testdata/shop/shop.yaml")
	must.NoError(t, err)
	write := func(text string) {
		t.Helper()
		must.NoError(t, os.WriteFile(filepath.Join(dir, "shop.yaml"), []byte(text), 0o644))
	}
	write(string(manifests))
	serveManifests(t, "n1", dir, tabletest.Rules())
	write(strings.Replace(string(manifests), ", conditions: {ready: false}", "", 1))
	for !strings.Contains(run("history"), "shop/web") {
		time.Sleep(10 * time.Millisecond)
	}
	data, err := os.ReadFile(examples)
	must.NoError(t, err)
	want := string(data)
	got := example.ReplaceAllStringFunc(want, func(text string) string {
		command, _, _ := strings.Cut(text, "\n")
		return command + "\n" + output(t, strings.TrimPrefix(command, "    # nftproxy "), dir)
	})
	for _, v := range verb.FindAllStringSubmatch(run("--help"), -1) {
		special := v[1] == "completion" || v[1] == "docs" || v[1] == "help" || v[1] == "version"
		if !special && !strings.Contains(want, "`"+v[1]+"`") {
			t.Errorf("%s does not mention %s", examples, v[1])
		}
	}
	if got == want {
		return
	}
	if flag.Lookup("update").Value.String() != "true" {
		t.Fatalf("%s differs; go test -run TestExamples -update rewrites it. Got\n%s", examples, got)
	}
	must.NoError(t, os.WriteFile(examples, []byte(got), 0o644))
}

const examples = "../../../docs/commands.md"

// example matches an example: the command, and its output.
var example = regexp.MustCompile(`(?m)^    # nftproxy .*\n(\n?    [^#].*\n)*`)

// output returns the output of a command, as lines of Markdown. Parts that
// differ between runs and nodes are replaced.
func output(t *testing.T, command, dir string) string {
	t.Helper()
	if strings.HasPrefix(command, "top") {
		track(t, 4, "10.244.1.5:8080", "--state", "ESTABLISHED", "--status", "SEEN_REPLY,ASSURED")
		track(t, 2, "10.244.2.5:8080", "--state", "SYN_SENT")
	}
	if strings.HasPrefix(command, "trace") {
		client := exec.Command("bash", "-c", "while sleep .1; do exec 3<>/dev/tcp/10.96.0.10/80; done")
		client.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		must.NoError(t, client.Start())
		defer client.Wait()
		defer syscall.Kill(-client.Process.Pid, syscall.SIGKILL)
	}
	text := run(strings.Fields(command)...)
	var lines strings.Builder
	for line := range strings.Lines(strings.ReplaceAll(text, dir, manifestsDir)) {
		if line != "\n" {
			line = "    " + line
		}
		for _, v := range varying {
			line = v.pattern.ReplaceAllString(line, v.by)
		}
		lines.WriteString(line)
	}
	return lines.String()
}

// track adds n connections to an endpoint of shop/web to connection tracking.
func track(t *testing.T, n int, endpoint string, state ...string) {
	t.Helper()
	for i := range n {
		client := exec.Command("conntrack", append([]string{
			"--create", "--proto", "tcp", "--timeout", "600", "--dst-nat", endpoint,
			"--src", "10.244.1.9", "--sport", fmt.Sprint(40000 + 10*n + i), "--dst", "10.96.0.10", "--dport", "80",
		}, state...)...)
		if out, err := client.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// manifestsDir is the folder of manifests in the examples.
const manifestsDir = "/etc/services.d"

var varying = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`process \d+`), "process 4711"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:]+(Z|[+-][\d:]+)`), "2026-01-01T12:00:07Z"},
	{regexp.MustCompile(`^    [\d:]+\.\d+ `), "    12:00:07.123 "},
	{regexp.MustCompile(`^    \d\d:\d\d:\d\d `), "    12:00:07 "},
	{regexp.MustCompile(` \d+s ago`), " 3s ago"},
	{regexp.MustCompile(`\d+ of MAX connections \(\d+ %\)`), "1234 of 262144 connections (0 %)"},
	{regexp.MustCompile(`Z \([\d.]+m?s\)`), "Z (2h12m)"},
	{regexp.MustCompile(`[\d.]+m?s ago, took [\d.]+[µm]?s`), "3s ago, took 1.23ms"},
	{regexp.MustCompile(`TOOK +`), "TOOK    "},
	{regexp.MustCompile(`change   [\d.]+[µm]?s +`), "change  1.23ms  "},
	{regexp.MustCompile(`change  [\d.]+[µm]?s +`), "change  1.23ms  "},
	{regexp.MustCompile(`nothing in .* packets to [^ ]*( [^ ]*8080)*:`),
		"nothing in 3.5 s: 4 packets to 10.244.1.5:8080:"},
	{regexp.MustCompile(`172.30.0.11:\d+`), "172.30.0.11:40000"},
	{regexp.MustCompile(`(endpoint|→) 10.244.[12].5:8080`), "$1 10.244.1.5:8080"},
}
