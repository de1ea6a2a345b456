package main

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/nftproxy/nftproxy/test/demo/page"
)

// The whole tour shows what it should, stays when that is asked for, and leaves nothing behind.
func TestTour(t *testing.T) {
	t.Parallel()
	d := start(t, newName(), kubeProxyProgram, "--keep")
	d.awaitText("press Ctrl-C")
	d.awaitText("conntrack -L") // the page goes on after that

	second := start(t, d.name, kubeProxyProgram)
	if code := second.exitCode(); code != exitFailed || !strings.Contains(second.stderr.String(), "another lab has the prefix "+d.name) {
		t.Errorf("a second tour of the same name: exit code %d", code)
	}
	if count := len(d.processes()); count != 2 {
		t.Errorf("%d kube-proxy processes run, want 2", count)
	}
	out, err := exec.Command("nsenter", "--net=/run/netns/"+d.name+".node1", "true").CombinedOutput()
	if err != nil {
		t.Errorf("go to node1: %v\n%s", err, out)
	}
	d.send(syscall.SIGINT)
	if code := d.exitCode(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	d.expectNothingLeft()
	checkPage(t, d.stdout.String())
}

// checkPage checks what holds for every tour.
func checkPage(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > page.Width {
			t.Errorf("a line of %d characters: %s", width, line)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Error("colours, though the output is no terminal")
	}
	for _, part := range []string{
		"1. The cluster", "2. The Services", "3. Who answers", "4. Who does not answer", "5. Scaling under load",
		"6. A UDP client", "7. kube-proxy is killed", "8. Somebody flushes", "9. The rules", "10. In short", "11. Look around",
		"goto balance-3", "checks are as they should be",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not shown", part)
		}
	}
	if strings.Contains(text, page.Wrong.String()) {
		t.Error("something is wrong")
	}
}

// A proxy that does something else is found out: here pods are not seen with their own addresses.
func TestTourOfAWrongProxy(t *testing.T) {
	t.Parallel()
	d := start(t, newName(), masqueradingProgram)
	if code := d.exitCode(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	for text, in := range map[string]string{
		"WRONG: toolbox to shop/web, ClusterIP, over TCP: IPv4: want the servers to see toolbox, they saw node2": d.stdout.String(),
		"checks failed": d.stderr.String(),
	} {
		if !strings.Contains(strings.Join(strings.Fields(in), " "), text) {
			t.Errorf("no word of %q", text)
		}
	}
	d.expectNothingLeft()
}

// A proxy that does not run ends the tour, with its last words.
func TestTourOfABrokenProxy(t *testing.T) {
	t.Parallel()
	d := start(t, newName(), brokenProgram)
	if code := d.exitCode(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"ended by itself (exit status 3)", "these are my last words"} {
		if !strings.Contains(d.stderr.String(), want) {
			t.Errorf("no word of %q", want)
		}
	}
	d.expectNothingLeft()
}

func TestFindPrograms(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if p, err := findPrograms(0, self); err != nil || p.kubeProxy != self || p.nft == "" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := findPrograms(1000, self); err == nil || !strings.Contains(err.Error(), "run it as root") {
		t.Errorf("not root: %v", err)
	}
	if _, err := findPrograms(0, "no/such/program"); err == nil || !strings.Contains(err.Error(), "no kube-proxy to show") {
		t.Errorf("no kube-proxy: %v", err)
	}
	if path, err := findProgram("no-such-program"); err == nil {
		t.Errorf("found %s", path)
	}
}

func TestUsage(t *testing.T) {
	var stderr strings.Builder
	for _, args := range [][]string{{"--colour"}, {"everything"}} {
		if code := run(args, os.Stdout, &stderr); code != exitUsage || !strings.Contains(stderr.String(), args[0]) {
			t.Errorf("%v: exit code %d, %s", args, code, stderr.String())
		}
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	code := run([]string{"--help"}, writer, &stderr)
	writer.Close()
	help, err := io.ReadAll(reader)
	if code != exitOK || err != nil || !strings.Contains(string(help), "--kube-proxy PROGRAM") {
		t.Errorf("exit code %d, %v\n%s", code, err, help)
	}
}
