package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/random"
)

// Kinds of faults, apart from damages.
const (
	kill        = "SIGKILL"
	noAPIServer = "API server stopped"
	swap        = "swap with kube-proxy"
	silence     = "endpoint does not answer"
	none        = "none" // the only one of a run without faults
)

// fault is a kind of fault.
type fault struct {
	kind   string
	weight int // more than 1 makes it more likely than others
	// first reports whether it concerns the first node only: the proxy of the
	// second one runs all the time.
	first bool
	// cause causes the fault, and returns the time from its end until the proxy
	// has recovered, 0 if that is when the proxy follows the API.
	cause func(ctx context.Context, n *node, d draw) (recovered time.Duration, err error)
}

// kinds returns all kinds of faults, apart from damages.
func (f *faults) kinds() []fault {
	return []fault{
		{kill, 4, true, f.restart},
		{"SIGTERM", 2, true, f.restart},
		{swap, 2, true, f.swap},
		{"configuration changed", 2, true, f.reconfigure},
		{"invalid configuration", 1, false, f.breakConfig},
		{"address added", 2, false, f.addAddress},
		{"Node object deleted", 2, false, f.deleteNode},
		{"other tables written", 3, false, f.writeTable},
		{"node isolated from the API server", 1, true, f.isolate},
		{noAPIServer, 1, false, f.stopAPIServer}, // client-go waits up to a minute afterwards
		{"one family deleted repeatedly", 2, false, f.fight},
		{"foreign reference to a balancer", 1, false, f.refer},
		{"requests to the kernel fail", 2, false, f.refuse},
		{"hostile Service", 2, false, f.createHostile},
		{silence, 3, false, f.silence},
	}
}

// faults causes faults, one after another. Their sequence follows from the
// seed.
type faults struct {
	world      *world
	random     *rand.Rand
	recoveries map[string]report.Sample
	variant    int // of the configuration of the first node
}

// draw is a fault that was chosen.
type draw struct {
	fault
	node    int
	command string        // of a damage
	number  int           // any number
	lasts   time.Duration // for example, without a proxy
	inside  *draw         // another one meanwhile; nil for none
	pause   time.Duration // before
}

// draw chooses the next fault.
func (f *faults) draw() draw {
	var weighted []fault
	for _, one := range f.kinds() {
		weighted = append(weighted, slices.Repeat([]fault{one}, one.weight)...)
	}
	d := f.drawDamage()
	if i := f.random.IntN(2 * len(weighted)); i < len(weighted) {
		d.fault = weighted[i]
	}
	if d.first {
		d.node = 0
	}
	if inside := f.drawDamage(); d.kind == noAPIServer {
		if f.random.IntN(2) == 0 {
			inside.kind = kill
		}
		d.inside = &inside
	}
	return d
}

func (f *faults) drawDamage() draw {
	all := damages()
	chosen := all[f.random.IntN(len(all))]
	return draw{
		fault:   fault{kind: chosen[0], cause: f.damage},
		command: chosen[1], node: f.random.IntN(2), number: f.random.IntN(1 << 20),
		lasts: f.between(100*time.Millisecond, 4*time.Second), pause: f.between(300*time.Millisecond, 3*time.Second),
	}
}

func (f *faults) between(least, most time.Duration) time.Duration {
	return least + time.Duration(f.random.Int64N(int64(most-least)))
}

// next causes the next fault and waits until the proxies have recovered.
func (f *faults) next(ctx context.Context) error {
	d := f.draw()
	only := f.world.soak.kinds
	for len(only) > 0 && only[0] != none && !slices.Contains(only, d.kind) {
		d = f.draw()
	}
	if !lab.Sleep(ctx, d.pause) || slices.Contains(only, none) {
		return nil
	}
	began := time.Now()
	recovered, err := f.causeOne(ctx, d)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", d.kind, err)
	}
	f.world.say("%s on %s: recovered after %s of %s", d.kind, f.world.nodes[d.node].Name,
		recovered.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	return nil
}

func (f *faults) causeOne(ctx context.Context, d draw) (recovered time.Duration, err error) {
	n := f.world.nodes[d.node]
	recovered, err = d.cause(ctx, n, d)
	if err == nil && recovered == 0 {
		recovered, err = follow(ctx, n)
	}
	if err == nil {
		sample := f.recoveries[d.kind]
		sample.Add(recovered)
		f.recoveries[d.kind] = sample
	}
	return recovered, err
}

// follow returns the longest time until a proxy of nodes follows the API.
func follow(ctx context.Context, nodes ...*node) (longest time.Duration, err error) {
	var group errgroup.Group
	took := make([]time.Duration, len(nodes))
	for i, n := range nodes {
		group.Go(func() (err error) {
			took[i], err = n.await(ctx)
			return err
		})
	}
	err = group.Wait()
	return slices.Max(took), err
}

// during waits for a time between the begin and the end of a fault.
func during(ctx context.Context, lasts time.Duration, begin, end func() error) error {
	if err := begin(); err != nil {
		return err
	}
	lab.Sleep(ctx, lasts)
	return end()
}

// restart ends the proxy, and starts it again after a time.
func (f *faults) restart(ctx context.Context, n *node, d draw) (time.Duration, error) {
	signal := syscall.SIGTERM
	if d.kind == kill {
		signal = syscall.SIGKILL
	}
	n.process.End(signal)
	lab.Sleep(ctx, d.lasts)
	return 0, n.start(f.world.soak.programs.Product)
}

// stopAPIServer stops the API server, and causes another fault meanwhile. A
// proxy that starts without the API server waits for it.
func (f *faults) stopAPIServer(ctx context.Context, _ *node, d draw) (time.Duration, error) {
	server, stop := f.world.Cluster.APIServer, f.world.Cluster.APIServer.Stop
	if d.number%2 == 0 {
		stop = server.Kill
	}
	err := during(ctx, d.inside.lasts, func() error {
		if err := stop(); err != nil {
			return err
		}
		lab.Sleep(ctx, d.lasts)
		if first := f.world.nodes[0]; d.inside.kind == kill {
			return first.replace(syscall.SIGKILL, f.world.soak.programs.Product)
		}
		_, err := f.causeOne(ctx, *d.inside)
		return err
	}, func() error { return server.Start(ctx) })
	if err != nil {
		return 0, err
	}
	return follow(ctx, f.world.nodes...)
}

// isolate drops all packets between the node and the API server for a time.
func (f *faults) isolate(ctx context.Context, n *node, d draw) (time.Duration, error) {
	cluster := f.world.Cluster
	return 0, during(ctx, d.lasts, func() error { return cluster.Isolate(n.Namespace) },
		func() error { return cluster.Rejoin(n.Namespace) })
}

// addAddress adds an interface with addresses to the node until a NodePort is
// served on them. The kernel would use another address of an interface for
// masquerading.
func (f *faults) addAddress(ctx context.Context, n *node, _ draw) (recovered time.Duration, err error) {
	const name = "second"
	addrs := random.SecondAddrs()
	if err := n.AddInterface(name, lab.HostPrefixes(addrs...)...); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, n.RemoveInterface(name)) }()
	began := time.Now()
	for _, addr := range addrs {
		if err := awaitNodePort(ctx, n, netip.AddrPortFrom(addr, 32700)); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// awaitNodePort waits until a NodePort answers to the node itself.
func awaitNodePort(ctx context.Context, n *node, to netip.AddrPort) error {
	var result lab.Result
	err := wait.PollUntilContextTimeout(ctx, poll, patience, true, func(ctx context.Context) (bool, error) {
		result = lab.Probe(ctx, n.Namespace, "tcp", to, lab.ProbeOptions{Timeout: time.Second})
		return result.Outcome == lab.Answered, nil
	})
	if err != nil {
		return fmt.Errorf("NodePort %s of %s: %w: %v", to, n.Name, err, result)
	}
	return nil
}

// deleteNode deletes the Node object, and creates it again after a time.
func (f *faults) deleteNode(ctx context.Context, n *node, d draw) (time.Duration, error) {
	return 0, during(ctx, d.lasts, func() error {
		return f.world.Client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{})
	}, func() error { return f.world.Cluster.CreateNode(ctx, n.Namespace, n.PodRanges...) })
}

// reconfigure changes the configuration. The proxy ends and is started again,
// as in a pod.
func (f *faults) reconfigure(_ context.Context, n *node, d draw) (time.Duration, error) {
	f.variant += 1 + d.number%(len(variants())-1)
	n.process.MayEnd()
	if err := n.configure(f.world.configuration(n, f.variant)); err != nil {
		return 0, err
	}
	select {
	case <-n.process.Running.Done():
		return 0, n.start(f.world.soak.programs.Product)
	case <-time.After(patience):
		return 0, fmt.Errorf("the proxy of %s has not ended after its configuration changed", n.Name)
	}
}

// breakConfig makes the configuration invalid for a time. The proxy continues.
func (f *faults) breakConfig(ctx context.Context, n *node, d draw) (time.Duration, error) {
	valid := n.config
	const noticed = 10 * time.Second // the proxy reads it every 5 s, twice
	return 0, during(ctx, noticed+d.lasts, func() error { return n.configure(valid + "mode: sendmail\n") },
		func() error { return n.configure(valid) })
}

// swap replaces the proxy with kube-proxy and back. The clients of session
// affinity are lost.
func (f *faults) swap(ctx context.Context, n *node, d draw) (time.Duration, error) {
	window := f.world.open(window{kind: swap, node: n, affinity: true})
	defer f.world.shut(window)
	if err := n.replace(syscall.SIGTERM, filepath.Join(f.world.soak.programs.Folder, "kube-proxy")); err != nil {
		return 0, err
	}
	if _, err := n.await(ctx); err != nil {
		return 0, err
	}
	lab.Sleep(ctx, d.lasts)
	if err := n.replace(syscall.SIGKILL, f.world.soak.programs.Product); err != nil {
		return 0, err
	}
	return follow(ctx, n)
}

// silence makes the answers of an endpoint get lost for a time. The Services of
// the endpoint explain failures until no endpoint is ejected any more.
func (f *faults) silence(ctx context.Context, _ *node, d draw) (time.Duration, error) {
	const longer = 4 // than other faults, so that proxies eject the endpoint
	pod := f.world.endpoints[[]string{"a1", "a2", "b1", "b2"}[d.number%4]]
	window := f.world.open(window{kind: silence, node: f.world.nodes[0], all: true, endpoint: pod.Name})
	defer f.world.shut(window)
	clients := lab.PodRanges()
	for _, at := range []*lab.Namespace{f.world.Lab.Client, f.world.Lab.Node1.Namespace, f.world.Lab.Node2.Namespace} {
		clients = append(clients, lab.HostPrefixes(at.Addrs()...)...)
	}
	err := during(ctx, longer*d.lasts, func() error { return pod.Blackhole(clients...) },
		func() error { return pod.RemoveRoute(clients...) })
	began := time.Now()
	for _, n := range f.world.nodes {
		err = errors.Join(err, n.awaitNoEjections(ctx))
	}
	return time.Since(began), err
}

// refuse makes some of the proxy's requests to the kernel fail for a time, as
// if the kernel had no memory or no room in a buffer. No rule changes, so no
// connection may fail. strace injects the errors.
func (f *faults) refuse(ctx context.Context, n *node, d draw) (time.Duration, error) {
	errors := []string{"ENOMEM", "ENOBUFS", "EINTR", "EAGAIN", "EBUSY"}
	from, step := 1+d.number/5%3, 2+d.number/15%4 // which requests of each thread
	inject := fmt.Sprintf("inject=sendto,sendmsg:error=%s:when=%d+%d", errors[d.number%5], from, step)
	cmd := exec.Command("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=sendto,sendmsg", "-e", inject,
		"-p", strconv.Itoa(n.process.PID))
	var out bytes.Buffer
	cmd.Stderr, cmd.SysProcAttr = &out, &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	lab.Sleep(ctx, d.lasts)
	_ = cmd.Process.Signal(syscall.SIGTERM) // it ends early only if it failed
	if err := cmd.Wait(); out.Len() > 0 {
		return 0, fmt.Errorf("strace: %w: %s", err, out.Bytes())
	}
	return 0, nil
}
