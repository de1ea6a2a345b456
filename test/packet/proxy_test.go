package packet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// proxy is the kube-proxy command in a namespace.
type proxy struct {
	at    *lab.Namespace
	node  string // the name of its Node
	dir   string // of its manifests
	flags []string

	log *labtest.Log // of all its processes
	cmd *lab.Cmd     // nil while it does not run
	end chan error
}

// newProxy returns a proxy with an empty directory. It does not run yet.
func newProxy(t testing.TB, at *lab.Namespace, node string, flags ...string) *proxy {
	p := &proxy{at: at, node: node, dir: t.TempDir(), flags: flags, log: new(labtest.Log)}
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

// kubeProxy returns the command, to run in a namespace.
func kubeProxy(t testing.TB, at *lab.Namespace, args ...string) *lab.Cmd {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := at.Command(context.Background(), program, args...)
	// The tests also run on kernels older than the command supports.
	cmd.Env = append(os.Environ(), asKubeProxy+"=1", "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK=1")
	// The proxy ends even if the test program is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// start starts the proxy without waiting for its rules.
func (p *proxy) start(t testing.TB) {
	t.Helper()
	flags := append([]string{"--manifests", p.dir, "--hostname-override", p.node, "-v", "2"}, p.flags...)
	cmd := kubeProxy(t, p.at, flags...)
	p.log.Restart()
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.cmd, p.end = cmd, make(chan error, 1)
	go func() { p.end <- cmd.Wait() }()
}

// awaitRules waits until the proxy logs that the rules are in place.
func (p *proxy) awaitRules(t testing.TB) {
	t.Helper()
	p.awaitLog(t, "Rules are in place")
}

// awaitLog waits for a text in the log of the running process.
func (p *proxy) awaitLog(t testing.TB, text string) {
	t.Helper()
	eventually(t, "kube-proxy on "+p.node, func() error {
		select {
		case err := <-p.end:
			p.cmd = nil
			t.Fatalf("kube-proxy on %s ended: %v", p.node, err)
		default:
		}
		if !strings.Contains(p.log.Current(), text) {
			return fmt.Errorf("got no %q in the log", text)
		}
		return nil
	})
}

// terminate ends the proxy with SIGTERM.
func (p *proxy) terminate(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	if err := p.wait(); err != nil {
		t.Errorf("kube-proxy on %s after SIGTERM: %v", p.node, err)
	}
}

// kill ends the proxy with SIGKILL.
func (p *proxy) kill(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	p.wait() // the error is the signal
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
