package packet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
)

// proxy is the kube-proxy command in a namespace.
type proxy struct {
	at    *lab.Namespace
	node  string // the name of the node that it is to be
	dir   string // its manifests
	flags []string

	log *logBuffer // of all its processes
	cmd *lab.Cmd   // nil while it does not run
	end chan error
}

// newProxy returns a proxy that does not run yet, with an empty directory.
func newProxy(t testing.TB, at *lab.Namespace, node string, flags ...string) *proxy {
	p := &proxy{at: at, node: node, dir: t.TempDir(), flags: flags, log: new(logBuffer)}
	t.Cleanup(func() {
		if p.cmd != nil {
			p.kill(t)
		}
		if t.Failed() {
			t.Logf("log of kube-proxy on %s in %s:\n%s", p.node, p.at.Name, p.log)
		}
	})
	return p
}

// kubeProxy prepares the command to be run in a namespace.
func kubeProxy(t testing.TB, at *lab.Namespace, args ...string) *lab.Cmd {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := at.Command(context.Background(), program, args...)
	// The tests run on kernels too that are older than what the command promises to work on.
	cmd.Env = append(os.Environ(), asKubeProxy+"=1", "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK=1")
	// Nothing stays behind when the test program is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// start starts the proxy and does not wait for what it does.
func (p *proxy) start(t testing.TB) {
	t.Helper()
	flags := append([]string{"--manifests", p.dir, "--hostname-override", p.node, "-v", "2"}, p.flags...)
	cmd := kubeProxy(t, p.at, flags...)
	p.log.restart()
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.cmd, p.end = cmd, make(chan error, 1)
	go func() { p.end <- cmd.Wait() }()
}

// awaitRules waits until the proxy says that the rules are in place.
func (p *proxy) awaitRules(t testing.TB) {
	t.Helper()
	p.awaitLog(t, "Rules are in place")
}

// awaitLog waits for a text in the log of the process that runs.
func (p *proxy) awaitLog(t testing.TB, text string) {
	t.Helper()
	eventually(t, "kube-proxy on "+p.node, func() error {
		select {
		case err := <-p.end:
			p.cmd = nil
			t.Fatalf("kube-proxy on %s ended: %v", p.node, err)
		default:
		}
		if !strings.Contains(p.log.current(), text) {
			return fmt.Errorf("no %q in its log", text)
		}
		return nil
	})
}

// terminate ends the proxy as a service manager does.
func (p *proxy) terminate(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	if err := p.wait(); err != nil {
		t.Errorf("kube-proxy on %s, told to end: %v", p.node, err)
	}
}

// kill ends the proxy without notice.
func (p *proxy) kill(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	p.wait() // it has no choice
}

func (p *proxy) signal(t testing.TB, signal os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

func (p *proxy) wait() error {
	err := <-p.end
	p.cmd = nil
	return err
}

// logBuffer keeps what a process says.
type logBuffer struct {
	mu    sync.Mutex // guards what follows
	text  bytes.Buffer
	begin int // of what the current process says
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// restart begins the log of another process.
func (b *logBuffer) restart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begin = b.text.Len()
}

// current returns what the current process has said.
func (b *logBuffer) current() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text.Bytes()[b.begin:])
}

// String returns what all processes have said.
func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
