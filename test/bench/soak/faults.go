package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/test/apiserver/random"
	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/lab"
)

// The kinds of faults, apart from those of damages.
const (
	kill        = "SIGKILL"
	terminate   = "SIGTERM"
	noAPIServer = "API server stopped"
	isolated    = "node isolated from the API server"
	address     = "address added"
	nodeObject  = "Node object deleted"
	newConfig   = "configuration changed"
	badConfig   = "invalid configuration"
	swap        = "swap with kube-proxy"
	otherTables = "other tables written"
	oneFamily   = "one family deleted repeatedly"
	referenced  = "foreign reference to a balancer"
	noRequests  = "requests to the kernel fail"
	hostile     = "hostile Service"
)

// faults causes faults, one after another. Their sequence follows from the
// seed.
type faults struct {
	world      *world
	random     *rand.Rand
	recoveries map[string]*report.Sample
	variant    int // of the configuration of the first node
}

// draw is a fault that was chosen.
type draw struct {
	kind    string
	node    int
	command string        // of a damage
	number  int           // any number
	lasts   time.Duration // for example, without a proxy
	inside  *draw         // another one meanwhile; nil for none
	pause   time.Duration // before
}

func newFaults(w *world) *faults {
	return &faults{
		world: w, random: rand.New(rand.NewPCG(w.soak.seed, 1)), recoveries: map[string]*report.Sample{},
	}
}

// draw chooses the next fault.
func (f *faults) draw() draw {
	kinds := []string{ // client-go waits up to a minute after the API server was stopped
		kill, kill, kill, kill, terminate, terminate, swap, swap, newConfig, newConfig, badConfig, address, address,
		nodeObject, nodeObject, otherTables, otherTables, otherTables, isolated, noAPIServer,
		oneFamily, oneFamily, referenced, noRequests, noRequests, hostile, hostile,
	}
	d := f.drawDamage()
	if i := f.random.IntN(2 * len(kinds)); i < len(kinds) {
		d.kind = kinds[i]
	}
	if slices.Contains([]string{kill, terminate, isolated, newConfig, swap}, d.kind) {
		d.node = 0 // the proxy of the second node runs all the time
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
		kind: chosen[0], command: chosen[1], node: f.random.IntN(2), number: f.random.IntN(1 << 20),
		lasts: f.between(100*time.Millisecond, 4*time.Second), pause: f.between(300*time.Millisecond, 3*time.Second),
	}
}

func (f *faults) between(least, most time.Duration) time.Duration {
	return least + time.Duration(f.random.Int64N(int64(most-least)))
}

// next causes the next fault and waits until the proxies have recovered.
func (f *faults) next(ctx context.Context) error {
	d := f.draw()
	for only := f.world.soak.kinds; len(only) > 0 && !slices.Contains(only, d.kind); {
		d = f.draw()
	}
	if !sleep(ctx, d.pause) {
		return nil
	}
	began := time.Now()
	recovered, err := f.cause(ctx, d)
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

// cause causes a fault, and returns the time from its end until the proxy has
// recovered.
func (f *faults) cause(ctx context.Context, d draw) (recovered time.Duration, err error) {
	switch n := f.world.nodes[d.node]; d.kind {
	case kill:
		recovered, err = f.restart(ctx, n, syscall.SIGKILL, d.lasts)
	case terminate:
		recovered, err = f.restart(ctx, n, syscall.SIGTERM, d.lasts)
	case noAPIServer:
		recovered, err = f.stopAPIServer(ctx, d)
	case isolated:
		recovered, err = f.isolate(ctx, n, d.lasts)
	case address:
		recovered, err = f.addAddress(ctx, n)
	case nodeObject:
		recovered, err = f.deleteNode(ctx, n, d.lasts)
	case newConfig:
		recovered, err = f.reconfigure(ctx, n, d.number)
	case badConfig:
		recovered, err = f.breakConfig(ctx, n, d.lasts)
	case swap:
		recovered, err = f.swap(ctx, n, d.lasts)
	case otherTables:
		recovered, err = f.writeTable(ctx, n, d.number)
	case oneFamily:
		recovered, err = f.fight(ctx, d)
	case referenced:
		recovered, err = f.refer(ctx, d)
	case noRequests:
		recovered, err = f.refuse(ctx, n, d)
	case hostile:
		recovered, err = f.createHostile(ctx, d)
	default:
		recovered, err = f.damage(ctx, d)
	}
	if err == nil {
		if f.recoveries[d.kind] == nil {
			f.recoveries[d.kind] = &report.Sample{}
		}
		f.recoveries[d.kind].Add(recovered)
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

// restart ends the proxy, and starts it again after a time.
func (f *faults) restart(
	ctx context.Context, n *node, signal syscall.Signal, without time.Duration,
) (time.Duration, error) {
	n.end(signal)
	sleep(ctx, without)
	if err := n.start(f.world.soak.programs.Product); err != nil {
		return 0, err
	}
	return follow(ctx, n)
}

// stopAPIServer stops the API server, and causes another fault meanwhile. A
// proxy that starts without the API server waits for it.
func (f *faults) stopAPIServer(ctx context.Context, d draw) (time.Duration, error) {
	server, stop := f.world.Cluster.APIServer, f.world.Cluster.APIServer.Stop
	if d.number%2 == 0 {
		stop = server.Kill
	}
	if err := stop(); err != nil {
		return 0, err
	}
	sleep(ctx, d.lasts)
	var err error
	if first := f.world.nodes[0]; d.inside.kind == kill {
		first.end(syscall.SIGKILL)
		err = first.start(f.world.soak.programs.Product)
	} else {
		_, err = f.cause(ctx, *d.inside)
	}
	sleep(ctx, d.inside.lasts)
	if err := errors.Join(err, server.Start(ctx)); err != nil {
		return 0, err
	}
	return follow(ctx, f.world.nodes...)
}

// isolate drops all packets between the node and the API server for a time.
func (f *faults) isolate(ctx context.Context, n *node, lasts time.Duration) (time.Duration, error) {
	if err := f.world.Cluster.Isolate(n.Namespace); err != nil {
		return 0, err
	}
	sleep(ctx, lasts)
	if err := f.world.Cluster.Rejoin(n.Namespace); err != nil {
		return 0, err
	}
	return follow(ctx, n)
}

// addAddress adds an interface with addresses to the node until a NodePort is
// served on them. The kernel would use another address of an interface for
// masquerading.
func (f *faults) addAddress(ctx context.Context, n *node) (recovered time.Duration, err error) {
	const name = "second"
	var prefixes []netip.Prefix
	for _, addr := range f.world.secondAddrs() {
		prefixes = append(prefixes, netip.PrefixFrom(addr, addr.BitLen()))
	}
	if err := n.AddInterface(name, prefixes...); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, n.RemoveInterface(name)) }()
	for _, prefix := range prefixes {
		took, err := awaitNodePort(ctx, n, netip.AddrPortFrom(prefix.Addr(), uint16(32700)))
		if err != nil {
			return 0, err
		}
		recovered += took
	}
	return recovered, nil
}

// awaitNodePort waits until a NodePort answers to the node itself.
func awaitNodePort(ctx context.Context, n *node, to netip.AddrPort) (time.Duration, error) {
	began := time.Now()
	for sleep(ctx, 5*time.Millisecond) {
		result := lab.Probe(ctx, n.Namespace, "tcp", to, lab.ProbeOptions{Timeout: time.Second})
		if result.Outcome == lab.Answered {
			break
		}
		if time.Since(began) > patience {
			return 0, fmt.Errorf("NodePort %s of %s after %s: %v", to, n.Name, patience, result)
		}
	}
	return time.Since(began), nil
}

// deleteNode deletes the Node object, and creates it again after a time.
func (f *faults) deleteNode(ctx context.Context, n *node, without time.Duration) (time.Duration, error) {
	if err := f.world.Client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil {
		return 0, err
	}
	sleep(ctx, without)
	if err := (&random.API{Client: f.world.Client}).CreateNode(ctx, n.Node); err != nil {
		return 0, err
	}
	return follow(ctx, n)
}

// reconfigure changes the configuration. The proxy ends and is started again,
// as in a pod.
func (f *faults) reconfigure(ctx context.Context, n *node, number int) (time.Duration, error) {
	f.variant += 1 + number%(len(f.world.variants(""))-1)
	process := n.mayEnd()
	if err := n.configure(f.world.configuration(n, f.variant)); err != nil {
		return 0, err
	}
	select {
	case <-process.Running.Done():
	case <-time.After(patience):
		return 0, fmt.Errorf("the proxy of %s has not ended after its configuration changed", n.Name)
	}
	if err := n.start(f.world.soak.programs.Product); err != nil {
		return 0, err
	}
	return follow(ctx, n)
}

// breakConfig makes the configuration invalid for a time. The proxy continues.
func (f *faults) breakConfig(ctx context.Context, n *node, lasts time.Duration) (time.Duration, error) {
	n.mu.Lock()
	valid := n.config
	n.mu.Unlock()
	if err := n.configure(valid + "mode: sendmail\n"); err != nil {
		return 0, err
	}
	sleep(ctx, lasts)
	if err := n.configure(valid); err != nil {
		return 0, err
	}
	return follow(ctx, n)
}

// swap replaces the proxy with kube-proxy and back. The clients of session
// affinity are lost.
func (f *faults) swap(ctx context.Context, n *node, lasts time.Duration) (time.Duration, error) {
	window := f.world.open(window{kind: swap, node: n, affinity: true})
	defer f.world.shut(window)
	n.end(syscall.SIGTERM)
	n.setOther(true)
	if err := n.start(f.world.soak.kubeProxy()); err != nil {
		return 0, err
	}
	if _, err := n.await(ctx); err != nil {
		return 0, err
	}
	sleep(ctx, lasts)
	n.end(syscall.SIGKILL)
	if err := n.start(f.world.soak.programs.Product); err != nil {
		return 0, err
	}
	recovered, err := follow(ctx, n)
	n.setOther(false)
	return recovered, err
}
