package main

import (
	"errors"
	"flag"
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
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator"
)

// The test program runs these programs if it is called by their names.
const (
	demoProgram         = "nftproxy-demo"
	kubeProxyProgram    = "kube-proxy"
	masqueradingProgram = "kube-proxy-masquerade-all"
	brokenProgram       = "kube-proxy-broken"
)

func TestMain(m *testing.M) {
	args := os.Args[1:]
	switch filepath.Base(os.Args[0]) {
	case demoProgram:
		if strings.Contains(strings.Join(args, " "), masqueradingProgram) {
			tourScript, _, _ = strings.Cut(tourScript, "# Who does not answer") // its faults have been seen
		}
		os.Exit(run(args, os.Stdout, os.Stderr))
	case masqueradingProgram:
		os.Exit(app.Main(append(args, "--masquerade-all"), os.Stdout, os.Stderr))
	case operator.Name:
		os.Exit(operator.Main(operator.Config{Stdout: os.Stdout, Stderr: os.Stderr}, args))
	case kubeProxyProgram:
		os.Exit(app.Main(args, os.Stdout, os.Stderr))
	case brokenProgram:
		os.Stderr.WriteString("a line of the log\n")
		os.Exit(3)
	}
	flag.Parse()
	// Each tour makes a thousand connections a second, and fails if one takes
	// more than three seconds.
	if err := flag.Set("test.parallel", "2"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// process is a demo under test. Its output is in two files.
type process struct {
	testing.TB
	name, folder string
	cmd          *exec.Cmd
	ended        chan struct{}
}

// program returns the test program under another name, in a folder where it is
// also nftproxy.
func program(t testing.TB, name string) string {
	self, err := os.Executable()
	folder := t.TempDir()
	for _, name := range []string{name, operator.Name} {
		err = errors.Join(err, os.Symlink(self, filepath.Join(folder, name)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(folder, name)
}

var demos atomic.Int32

func newName() string { return fmt.Sprintf("demo-test-%d-%d", os.Getpid(), demos.Add(1)) }

// start starts a demo.
func start(t testing.TB, name, kubeProxy string, flags ...string) *process {
	t.Helper()
	p := &process{TB: t, name: name, folder: t.TempDir(), ended: make(chan struct{})}
	p.cmd = exec.Command(program(t, demoProgram),
		append(flags, "--name", name, "--kube-proxy", program(t, kubeProxy))...)
	out, outErr := os.Create(p.folder + "/stdout")
	log, logErr := os.Create(p.folder + "/stderr")
	p.cmd.Stdout, p.cmd.Stderr = out, log
	p.run(errors.Join(outErr, logErr))
	return p
}

// run starts the demo unless there was an error.
func (p *process) run(err error) {
	p.Helper()
	if err := errors.Join(err, p.cmd.Start()); err != nil {
		p.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.ended)
	}()
	p.Cleanup(func() {
		p.cmd.Process.Signal(syscall.SIGTERM)
		<-p.ended
		if p.Failed() {
			p.Logf("standard output:\n%s\nstandard error:\n%s", p.read("stdout"), p.read("stderr"))
		}
	})
}

// read returns the demo's standard output or error.
func (p *process) read(file string) string {
	data, err := os.ReadFile(filepath.Join(p.folder, file))
	if err != nil {
		p.Error(err)
	}
	return string(data)
}

// await waits until a condition is met, and reports whether it was before the
// demo ended.
func (p *process) await(met func() bool) bool {
	for deadline := time.Now().Add(2 * time.Minute); !met() && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	return met()
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

// end waits for the end, and returns an error if the exit code or a text on the
// standard error is another one, or if something remains of the demo.
func (p *process) end(code, text string) error {
	<-p.ended
	left := slices.Concat(p.kubeProxies(), matches("/run/netns/"+p.name+".*"), matches("/run/*"+p.name))
	errs := strings.Join(strings.Fields(p.read("stderr")), " ")
	if got := fmt.Sprint(p.cmd.ProcessState.ExitCode()); got != code || !strings.Contains(errs, text) || len(left) > 0 {
		return fmt.Errorf("got exit code %s, error %q, and left behind %q", got, errs, left)
	}
	return nil
}

func TestClosedOutput(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{TB: t, name: newName(), folder: t.TempDir(), ended: make(chan struct{})}
	p.cmd = exec.Command(program(t, demoProgram), "--name", p.name, "--kube-proxy", program(t, kubeProxyProgram))
	log, err := os.Create(p.folder + "/stderr")
	p.cmd.Stdout, p.cmd.Stderr = writer, log
	p.run(errors.Join(err, os.WriteFile(p.folder+"/stdout", nil, 0o600)))
	writer.Close()
	reader.Read(make([]byte, 10))
	reader.Close()
	if err := p.end("1", "broken pipe"); err != nil {
		t.Error(err)
	}
}
