package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/app"
)

// The test program runs these programs if it is called by their names.
const (
	demoProgram         = "nftproxy-demo"
	kubeProxyProgram    = "nftproxy-kube-proxy"
	masqueradingProgram = "nftproxy-kube-proxy-masquerade-all"
	brokenProgram       = "nftproxy-kube-proxy-broken"
)

func TestMain(m *testing.M) {
	args := os.Args[1:]
	switch filepath.Base(os.Args[0]) {
	case demoProgram:
		os.Exit(run(args, os.Stdout, os.Stderr))
	case masqueradingProgram:
		os.Exit(app.Main(append(args, "--masquerade-all"), os.Stdout, os.Stderr))
	case kubeProxyProgram:
		os.Exit(app.Main(args, os.Stdout, os.Stderr))
	case brokenProgram:
		os.Stderr.WriteString("a line of the log\n")
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// process is a demo under test.
type process struct {
	*testing.T
	name, folder string
	cmd          *exec.Cmd
	ended        chan struct{}
}

// program returns the test program under another name.
func program(t *testing.T, name string) string {
	self, err := os.Executable()
	path := filepath.Join(t.TempDir(), name)
	if err := errors.Join(err, os.Symlink(self, path)); err != nil {
		t.Fatal(err)
	}
	return path
}

var demos atomic.Int32

func newName() string { return fmt.Sprintf("demo-test-%d-%d", os.Getpid(), demos.Add(1)) }

// start starts a demo. Its output is in two files, unless stdout is not nil.
func start(t *testing.T, name, kubeProxy string, stdout *os.File, flags ...string) *process {
	t.Helper()
	p := &process{T: t, name: name, folder: t.TempDir(), ended: make(chan struct{})}
	flags = append(flags, "--name", name, "--kube-proxy", program(t, kubeProxy))
	p.cmd = exec.Command(program(t, demoProgram), flags...)
	out, outErr := os.Create(p.folder + "/stdout")
	log, logErr := os.Create(p.folder + "/stderr")
	p.cmd.Stdout, p.cmd.Stderr = out, log
	if stdout != nil {
		p.cmd.Stdout = stdout
	}
	if err := errors.Join(outErr, logErr, p.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Signal(syscall.SIGTERM)
		<-p.ended
		if t.Failed() {
			t.Logf("standard output:\n%s\nstandard error:\n%s", p.read("stdout"), p.read("stderr"))
		}
	})
	return p
}

// read returns the demo's standard output or error.
func (p *process) read(file string) string {
	data, err := os.ReadFile(filepath.Join(p.folder, file))
	if err != nil {
		p.Error(err)
	}
	return string(data)
}

// await waits until a condition is met.
func (p *process) await(met func(*process) bool) {
	p.Helper()
	for !met(p) {
		select {
		case <-p.ended:
			p.Fatalf("demo ended early: %v", p.cmd.ProcessState)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func printed(text string) func(*process) bool {
	return func(p *process) bool { return strings.Contains(p.read("stdout"), text) }
}

func exists(prefix, suffix string) func(*process) bool {
	return func(p *process) bool { return len(matches(prefix+p.name+suffix)) > 0 }
}

func running(count int) func(*process) bool {
	return func(p *process) bool { return len(p.kubeProxies()) == count }
}

func matches(pattern string) []string {
	files, err := filepath.Glob(pattern)
	if err != nil {
		panic(err)
	}
	return files
}

// kubeProxies returns the files of the demo's running kube-proxies.
func (p *process) kubeProxies() []string {
	return slices.DeleteFunc(matches("/proc/[0-9]*/cmdline"), func(file string) bool {
		data, err := os.ReadFile(file) // fails if the process has ended
		return err != nil || !strings.Contains(string(data), "/run/nftproxy-"+p.name+"/")
	})
}

// expectEnd checks the exit code, a text on the standard error, and that
// nothing remains of the demo.
func (p *process) expectEnd(code int, text string) {
	p.Helper()
	<-p.ended
	left := slices.Concat(p.kubeProxies(), matches("/run/netns/"+p.name+".*"), matches("/run/*"+p.name))
	if len(left) > 0 {
		p.Errorf("left behind: %q", left)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code || !strings.Contains(p.read("stderr"), text) {
		p.Errorf("got exit code %d and error %q, want %d and %q", got, p.read("stderr"), code, text)
	}
}

func TestTour(t *testing.T) {
	t.Parallel()
	p := start(t, newName(), kubeProxyProgram, nil, "--keep")
	p.await(printed("ip netns exec " + p.name + ".node1 bash"))
	second := start(t, p.name, kubeProxyProgram, nil)
	<-second.ended
	if want := "another lab has the name " + p.name; !strings.Contains(second.read("stderr"), want) {
		t.Errorf("got error %q of a second demo with the same name, want %q", second.read("stderr"), want)
	}
	if !running(2)(p) {
		t.Errorf("got kube-proxies %q, want two", p.kubeProxies())
	}
	p.cmd.Process.Signal(syscall.SIGINT)
	p.expectEnd(exitOK, "")
	for _, want := range []string{"1. The cluster", "9. The table", "goto balance-3", "91 of 91 checks passed"} {
		if !printed(want)(p) {
			t.Errorf("got no %q", want)
		}
	}
	if printed("FAILED")(p) {
		t.Error("got failed checks")
	}
}

// Pods must see the address of the toolbox, not of its node.
func TestWrongProxy(t *testing.T) {
	t.Parallel()
	p := start(t, newName(), masqueradingProgram, nil)
	p.expectEnd(exitFailed, "checks failed")
	want := "FAILED: toolbox to shop/web, ClusterIP, tcp over IPv4: pods see node2, want toolbox"
	if !printed(want)(p) {
		t.Errorf("got no %q", want)
	}
}

func TestBrokenProxy(t *testing.T) {
	t.Parallel()
	p := start(t, newName(), brokenProgram, nil)
	p.expectEnd(exitFailed, "ended (exit status 3); its log:\na line of the log")
}

func TestInterrupted(t *testing.T) {
	for i, moment := range []struct {
		name string
		met  func(*process) bool
	}{
		{"client exists", exists("/run/netns/", ".client")},
		{"folder exists", exists("/run/nftproxy-", "")},
		{"last pod exists", exists("/run/netns/", ".toolbox")},
		{"one proxy runs", running(1)},
		{"both proxies run", running(2)},
		{"calls", printed("3. Who answers")},
		{"clients connect", printed("5. Scaling")},
		{"UDP flows", printed("6. The endpoint")},
		{"proxy is killed", func(p *process) bool { return printed("7. kube-proxy")(p) && running(1)(p) }},
		{"rules are flushed", printed("nft flush ruleset")},
		{"nft runs", printed("9. The table")},
	} {
		t.Run(moment.name, func(t *testing.T) {
			t.Parallel()
			p := start(t, newName(), kubeProxyProgram, nil)
			p.await(moment.met)
			for range 1 + i%3*10 { // more signals must not interrupt the cleanup
				p.cmd.Process.Signal([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}[i%3])
				time.Sleep(time.Millisecond)
			}
			p.expectEnd(exitInterrupted, "interrupted; everything is cleaned up")
		})
	}
}

func TestClosedOutput(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, newName(), kubeProxyProgram, writer)
	writer.Close()
	reader.Read(make([]byte, 10))
	reader.Close()
	p.expectEnd(exitFailed, "broken pipe")
}

// The kernel ends the processes of a demo that is killed. The next demo removes
// the rest.
func TestKilled(t *testing.T) {
	t.Parallel()
	p := start(t, newName(), kubeProxyProgram, nil)
	p.await(printed("5. Scaling"))
	p.cmd.Process.Kill()
	<-p.ended
	for deadline := time.Now().Add(10 * time.Second); !running(0)(p) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	stray := "/run/nftproxy-" + p.name + "/stray.yaml"
	if err := os.WriteFile(stray, nil, 0o644); err != nil || !running(0)(p) {
		t.Fatalf("got error %v and kube-proxies %q, want the folder of the killed demo only", err, p.kubeProxies())
	}
	next := start(t, p.name, kubeProxyProgram, nil)
	next.await(printed("3. Who answers"))
	if len(matches(stray)) > 0 {
		t.Error("got files of the killed demo in the next one")
	}
	next.cmd.Process.Signal(syscall.SIGINT)
	next.expectEnd(exitInterrupted, "")
}
