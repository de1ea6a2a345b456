package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/apiserver/scale/observe"
	"github.com/nftproxy/nftproxy/test/lab"
)

// The proxies.
const (
	upstream = "kube-proxy"
	product  = "nftproxy"
)

// node is a namespace with a proxy: the subject of measurements.
type node struct {
	world   *world
	proxy   string
	program string
	pod     *lab.Pod
	config  string // file
	prober  *observe.Prober
	starts  int

	process *process // nil while none runs
}

// process is a proxy that runs.
type process struct {
	pid   int
	group *observe.Group
	trace *observe.Trace
	peak  *observe.Peak
	began time.Time // just before exec
	// running ends with the process; its cause tells how that ended.
	running context.Context
	ended   chan struct{}
}

// newProxyNode makes a namespace without rules for a proxy.
func (w *world) newProxyNode(ctx context.Context, proxy string) (*node, error) {
	pod, err := w.newNode(ctx)
	if err != nil {
		return nil, err
	}
	n := &node{world: w, proxy: proxy, program: w.options.program(proxy), pod: pod, config: filepath.Join(w.dir, pod.Name+".conf")}
	if n.prober, err = observe.NewProber(pod.Fd()); err == nil {
		err = os.WriteFile(n.config, []byte(n.configuration()), 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, n.remove())
	}
	return n, nil
}

// configuration is the same for all proxies: the limit of connections belongs to the host, and everything else is the default.
func (n *node) configuration() string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: %s
clusterCIDR: %s
clientConnection: {kubeconfig: %s}
conntrack: {maxPerCore: 0}
enableProfiling: %t
`, n.pod.Name, clusterCIDR, n.world.cluster.AdminKubeconfig(), n.world.options.profile)
}

// start starts the proxy.
func (n *node) start(ctx context.Context) error {
	n.starts++
	name := fmt.Sprintf("nftproxy-scale-%d-%s-%d", os.Getpid(), n.pod.Name, n.starts)
	log, err := os.OpenFile(filepath.Join(n.world.dir, n.pod.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p := &process{ended: make(chan struct{})}
	if p.group, err = observe.NewGroup(name); err != nil {
		return err
	}
	cmd := n.pod.Command(context.Background(), n.program, "--config="+n.config)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, UseCgroupFD: true, CgroupFD: p.group.Fd()}
	running, end := context.WithCancelCause(ctx)
	p.running = running
	started := make(chan error, 1)
	go func() {
		defer close(p.ended)
		// The kernel ends the process with the thread that made it, however the benchmark ends: the thread waits.
		err := n.pod.Do(func() error {
			err := p.exec(cmd.Cmd, n.world.tracing, name)
			started <- err
			if err != nil {
				return err
			}
			return cmd.Wait()
		})
		if err == nil {
			err = errors.New("exit code 0")
		}
		select {
		case started <- err: // the namespace could not be entered
		default:
		}
		end(fmt.Errorf("%s ended: %w%s", n.proxy, err, n.lastWords()))
	}()
	if err := <-started; err != nil {
		<-p.ended
		return errors.Join(fmt.Errorf("start %s: %w", n.proxy, err), p.forget())
	}
	p.peak = observe.FollowPeak(p.group)
	n.process = p
	return nil
}

// exec makes the process, which is traced from its first system call.
func (p *process) exec(cmd *exec.Cmd, tracing *observe.Tracing, name string) (err error) {
	if p.trace, err = tracing.Follow(name, unix.Gettid()); err != nil {
		return err
	}
	p.began = time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	p.pid = cmd.Process.Pid
	return nil
}

// lastWords is the end of what the proxy said.
func (n *node) lastWords() string {
	const enough = 2000
	text, err := os.ReadFile(filepath.Join(n.world.dir, n.pod.Name+".log"))
	if err != nil || len(text) == 0 {
		return ""
	}
	return "\n" + string(text[max(0, len(text)-enough):])
}

// stop ends the proxy as a service manager does. Its table stays.
func (n *node) stop() error {
	p := n.process
	if p == nil {
		return nil
	}
	n.process = nil
	const patience = 10 * time.Second
	_ = syscall.Kill(p.pid, syscall.SIGTERM) // fails if it is gone
	select {
	case <-p.ended:
	case <-time.After(patience):
	}
	return p.forget()
}

// forget ends what is left of the process, and looking at it.
func (p *process) forget() error {
	var errs []error
	if p.peak != nil {
		p.peak.Stop()
	}
	errs = append(errs, p.group.Close())
	<-p.ended
	if p.trace != nil {
		errs = append(errs, p.trace.Close())
	}
	return errors.Join(errs...)
}

// remove ends the proxy and removes its namespace.
func (n *node) remove() error {
	err := n.stop()
	if n.prober != nil {
		err = errors.Join(err, n.prober.Close())
	}
	return errors.Join(err, n.pod.Remove())
}
