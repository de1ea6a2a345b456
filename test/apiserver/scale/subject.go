package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/apiserver/scale/observe"
	"github.com/nftproxy/nftproxy/test/apiserver/scale/stage"
	"github.com/nftproxy/nftproxy/test/lab"
)

// node is a namespace with a proxy: the subject of measurements.
type node struct {
	stage  *stage.Node
	world  *world
	proxy  string
	pod    *lab.Pod
	starts int

	process *process // nil while none runs
}

// process is a proxy that runs, and that is looked at.
type process struct {
	*stage.Process
	pid     int
	running context.Context // see stage.Process
	group   *observe.Group
	trace   *observe.Trace
	peak    *observe.Peak
}

// newProxyNode makes a namespace without rules for a proxy.
func (w *world) newProxyNode(ctx context.Context, proxy string) (*node, error) {
	n, err := w.NewNode(ctx, proxy, w.options.programs.Path(proxy))
	if err != nil {
		return nil, err
	}
	return &node{stage: n, world: w, proxy: proxy, pod: n.Pod}, nil
}

// start starts the proxy, in a control group of its own, and traced from its first system call.
func (n *node) start(ctx context.Context) (err error) {
	n.starts++
	name := fmt.Sprintf("nftproxy-scale-%d-%s-%d", os.Getpid(), n.pod.Name, n.starts)
	p := new(process)
	if p.group, err = observe.NewGroup(name); err != nil {
		return err
	}
	p.Process, err = n.stage.Start(ctx, syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: p.group.Fd()}, func() (err error) {
		p.trace, err = n.world.tracing.Follow(name, unix.Gettid())
		return err
	})
	if err != nil {
		return errors.Join(err, p.forget())
	}
	p.pid, p.running = p.PID, p.Running
	p.peak = observe.FollowPeak(p.group)
	n.process = p
	return nil
}

// stop ends the proxy as a service manager does. Its table stays.
func (n *node) stop() error {
	p := n.process
	if p == nil {
		return nil
	}
	n.process = nil
	p.Terminate()
	return p.forget()
}

// forget ends what is left of the process, and looking at it.
func (p *process) forget() error {
	var errs []error
	if p.peak != nil {
		p.peak.Stop()
	}
	errs = append(errs, p.group.Close())
	if p.Process != nil {
		<-p.Ended
	}
	if p.trace != nil {
		errs = append(errs, p.trace.Close())
	}
	return errors.Join(errs...)
}

// remove ends the proxy and removes its namespace.
func (n *node) remove() error { return errors.Join(n.stop(), n.stage.Remove()) }
