package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nftproxy/nftproxy/test/apiserver/scale/observe"
	"github.com/nftproxy/nftproxy/test/lab"
)

// Node is a namespace with a proxy.
type Node struct {
	Proxy  string // its name, for people
	Pod    *lab.Pod
	Prober *observe.Prober

	program string
	config  string // file
	log     string // file
}

// NewNode makes a namespace without rules for a proxy, which is started by that program.
func (s *Stage) NewNode(ctx context.Context, proxy, program string) (*Node, error) {
	pod, err := s.newPod(ctx)
	if err != nil {
		return nil, err
	}
	n := &Node{
		Proxy: proxy, Pod: pod, program: program,
		config: filepath.Join(s.Dir, pod.Name+".conf"), log: filepath.Join(s.Dir, pod.Name+".log"),
	}
	if n.Prober, err = observe.NewProber(pod.Fd()); err == nil {
		err = os.WriteFile(n.config, []byte(s.configuration(pod.Name)), 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, n.Remove())
	}
	return n, nil
}

// configuration is the same for all proxies: the limit of connections belongs to the host, and everything else is the default.
func (s *Stage) configuration(node string) string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: %s
clusterCIDR: %s
clientConnection: {kubeconfig: %s}
conntrack: {maxPerCore: 0}
enableProfiling: %t
`, node, ClusterCIDR, s.Cluster.AdminKubeconfig(), s.config.Profiling)
}

// Process is a proxy that runs.
type Process struct {
	PID   int
	Began time.Time // just before exec
	// Running ends with the process; its cause tells how that ended.
	Running context.Context
	// Ended is closed when the process is gone.
	Ended chan struct{}
}

// Start starts the proxy with these attributes. prepare, unless it is nil, is called before on the thread that makes the process.
func (n *Node) Start(ctx context.Context, attributes syscall.SysProcAttr, prepare func() error) (*Process, error) {
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := n.Pod.Command(context.Background(), n.program, "--config="+n.config)
	cmd.Stdout, cmd.Stderr = log, log
	attributes.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr = &attributes
	running, end := context.WithCancelCause(ctx)
	p := &Process{Running: running, Ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(p.Ended)
		// The kernel ends the process with the thread that made it, however the benchmark ends: the thread waits.
		err := n.Pod.Do(func() error {
			err := p.exec(cmd.Cmd, prepare)
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
		end(fmt.Errorf("%s ended: %w%s", n.Proxy, err, n.lastWords()))
	}()
	if err := <-started; err != nil {
		<-p.Ended
		return nil, fmt.Errorf("start %s: %w", n.Proxy, err)
	}
	return p, nil
}

func (p *Process) exec(cmd *exec.Cmd, prepare func() error) error {
	if prepare != nil {
		if err := prepare(); err != nil {
			return err
		}
	}
	p.Began = time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	p.PID = cmd.Process.Pid
	return nil
}

// lastWords is the end of what the proxy said.
func (n *Node) lastWords() string {
	const enough = 2000
	text, err := os.ReadFile(n.log)
	if err != nil || len(text) == 0 {
		return ""
	}
	return "\n" + string(text[max(0, len(text)-enough):])
}

// Terminate ends the proxy as a service manager does. Its table stays. A proxy that does not heed it is still there after some seconds.
func (p *Process) Terminate() {
	const patience = 10 * time.Second
	_ = syscall.Kill(p.PID, syscall.SIGTERM) // fails if it is gone
	select {
	case <-p.Ended:
	case <-time.After(patience):
	}
}

// Kill ends what Terminate did not.
func (p *Process) Kill() error {
	select {
	case <-p.Ended: // the number may be another process's by now
		return nil
	default:
	}
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill process %d: %w", p.PID, err)
	}
	<-p.Ended
	return nil
}

// Pause waits for a time, unless the process ends.
func (p *Process) Pause(d time.Duration) error {
	select {
	case <-p.Running.Done():
		return context.Cause(p.Running)
	case <-time.After(d):
		return nil
	}
}

// Remove removes the namespace. What still runs in it is killed.
func (n *Node) Remove() error {
	var err error
	if n.Prober != nil {
		err = n.Prober.Close()
	}
	return errors.Join(err, n.Pod.Remove())
}
