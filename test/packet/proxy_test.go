package packet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// proxy is the kube-proxy command in a namespace.
type proxy struct {
	at      *lab.Namespace
	node    string   // the name of its Node
	dir     string   // of its manifests
	objects []string // flags that name the source of API objects
	flags   []string
	log     string       // file, of all its processes
	process *lab.Process // nil while it does not run
}

// newProxy returns a proxy with an empty directory. It does not run yet.
func newProxy(t testing.TB, at *lab.Namespace, node string, flags ...string) *proxy {
	p := &proxy{at: at, node: node, dir: t.TempDir(), flags: flags, log: filepath.Join(t.TempDir(), "log")}
	p.objects = []string{"--manifests", p.dir}
	t.Cleanup(func() {
		if p.process != nil {
			p.kill()
		}
		if t.Failed() {
			log, _ := os.ReadFile(p.log) // none before it starts
			labtest.Attach(t, "log of kube-proxy on "+p.node, log)
		}
	})
	return p
}

// kubeProxy returns the test program, and the environment in which it is
// kube-proxy.
func kubeProxy(t testing.TB) (program string, env []string) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The tests also run on kernels older than the command supports.
	return program, append(os.Environ(), asKubeProxy+"=1", "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK=1")
}

// start starts the proxy without waiting for its rules.
func (p *proxy) start(t testing.TB) {
	t.Helper()
	program, env := kubeProxy(t)
	flags := slices.Concat(p.objects, []string{"--hostname-override", p.node, "-v", "2"}, p.flags)
	if subject() != "" {
		program, env, flags = subject(), nil, append(flags, subjectFlags()...)
	}
	var err error
	p.process, err = p.at.StartProcess(context.Background(), lab.ProcessConfig{
		Program: program, Args: flags, Env: env, Log: p.log,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// awaitRules waits until the proxy logs that the rules of both families are in
// place, or until the subject is healthy.
func (p *proxy) awaitRules(t testing.TB) {
	t.Helper()
	if subject() != "" {
		p.awaitHealth(t)
		return
	}
	for _, f := range bothFamilies() {
		p.awaitLog(t, fmt.Sprintf(`"Rules are in place" ipFamily="%s"`, f))
	}
}

// awaitLog waits for a text in the log of the running process.
func (p *proxy) awaitLog(t testing.TB, text string) {
	t.Helper()
	p.eventually(t, func() error {
		if !strings.Contains(p.process.Log(), text) {
			return fmt.Errorf("got no %q in the log", text)
		}
		return nil
	})
}

// eventually is like the function eventually, and ends the test if the proxy
// ends.
func (p *proxy) eventually(t testing.TB, look func() error) {
	t.Helper()
	eventually(t, "kube-proxy on "+p.node, func() error {
		if p.process.Running.Err() != nil {
			t.Fatalf("%s: %v", p.node, context.Cause(p.process.Running))
		}
		return look()
	})
}

// terminate ends the proxy with SIGTERM. A proxy that ignores it is killed.
func (p *proxy) terminate(t testing.TB) {
	t.Helper()
	p.process.End(syscall.SIGTERM)
	p.wait(t)
}

// wait waits until the proxy has ended after SIGTERM.
func (p *proxy) wait(t testing.TB) {
	t.Helper()
	if code := p.process.Wait(); code != 0 && subject() == "" {
		t.Errorf("kube-proxy on %s after SIGTERM: exit code %d", p.node, code)
	}
	p.process = nil
}

// kill ends the proxy with SIGKILL.
func (p *proxy) kill() {
	p.process.End(syscall.SIGKILL)
	p.process = nil
}
