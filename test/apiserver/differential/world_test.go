package differential

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/cluster"
	"github.com/nftproxy/nftproxy/test/cluster/objects"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

const apiPort = 6443

// world is an API server and two sides that have it.
type world struct {
	sides    [2]*side
	kube     *cluster.Cluster
	api      *objects.API
	sentinel *objects.Sentinel
}

// newWorld creates a world. No proxy runs yet.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{}
	for i, path := range []string{program(proxies()[0]), subject(t)} {
		w.sides[i] = newSide(t, proxies()[i], path)
	}
	var err error
	w.kube, err = cluster.Start(t.Context(), cluster.Config{
		Namespace: w.sides[0].control.Namespace, Programs: filepath.Dir(program("etcd")),
		Dir: filepath.Join(t.TempDir(), "cluster"), ServiceRanges: lab.ServiceRanges(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.kube.Close(); err != nil {
			t.Error(err)
		}
	})
	w.sides[1].relay(t, w.sides[0])
	w.api = &objects.API{Client: w.kube.Admin()}
	w.sentinel = &objects.Sentinel{API: w.api, Pods: [2]string{"a1", "a2"}, Addrs: w.sides[0].endpoints}
	for _, n := range w.sides[0].Nodes() {
		if err := w.kube.CreateNode(t.Context(), n.Namespace, n.PodRanges...); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.api.CreateServiceCIDR(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

// restart starts both proxies, with a configuration, on nodes without rules.
// kube-proxy is in mode iptables if the subject is, otherwise in mode nftables.
func (w *world) restart(ctx context.Context, config string) error {
	for i, s := range w.sides {
		s.stop()
		mode := labtest.SubjectMode()
		if i == 0 && mode != "iptables" {
			mode = "nftables"
		}
		modes := strings.NewReplacer("mode: nftables", "mode: "+mode, "nftables: {", mode+": {")
		if err := s.start(ctx, modes.Replace(config)); err != nil {
			return fmt.Errorf("%s: %w", s.proxy, err)
		}
	}
	return nil
}

// settle changes the sentinel, and waits until both proxies serve the change.
func (w *world) settle(ctx context.Context) error {
	mark, err := w.sentinel.Change(ctx)
	if err != nil {
		return err
	}
	for _, side := range w.sides {
		err = errors.Join(err, side.await(ctx, mark))
	}
	return err
}

func (s *side) await(ctx context.Context, mark objects.Mark) (err error) {
	const patience = 30 * time.Second
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err = mark.Served(ctx, s.Node1.Namespace); err == nil {
			return nil
		}
		if err := s.process.Pause(10 * time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s has not written the last change: %w; log:\n%s", s.proxy, err, s.process.EndOfLog())
}
