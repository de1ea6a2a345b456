package differential

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/cluster"
	"github.com/nftproxy/nftproxy/test/cluster/objects"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/must"
)

const (
	repository = "../../.."
	programs   = repository + "/.cache/apiserver" // built by test/apiserver/build
	apiPort    = 6443
)

var (
	seeds = flag.Uint64("seeds", 2, "number of random clusters")
	first = flag.Uint64("first", 1, "seed of the first cluster")
	steps = flag.Int("steps", 3, "number of states of each cluster")
)

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
	at, err := filepath.Abs(programs)
	must.NoError(t, err)
	w := &world{sides: [2]*side{newSide(t, "kube-proxy", filepath.Join(at, "kube-proxy")), newSubject(t)}}
	w.kube, err = cluster.Start(t.Context(), cluster.Config{
		Namespace: w.sides[0].control.Namespace, Programs: at, Dir: filepath.Join(t.TempDir(), "cluster"),
		ServiceRanges: lab.ServiceRanges(),
	})
	must.NoError(t, err)
	t.Cleanup(func() { must.NoError(t, w.kube.Close()) })
	w.sides[1].relay(t, w.sides[0])
	w.api = &objects.API{Client: w.kube.Admin()}
	w.sentinel = &objects.Sentinel{API: w.api, Pods: [2]string{"a1", "a2"}, Addrs: w.sides[0].endpoints}
	for _, n := range w.sides[0].Nodes() {
		must.NoError(t, w.kube.CreateNode(t.Context(), n.Namespace, n.PodRanges...))
	}
	must.NoError(t, w.api.CreateServiceCIDR(t.Context()))
	return w
}

// newSubject creates the side of the proxy that is compared with kube-proxy. It
// builds nftproxy unless there is another one.
func newSubject(t testing.TB) *side {
	t.Helper()
	if path := labtest.Subject(); path != "" {
		return newSide(t, "subject", path)
	}
	path := filepath.Join(t.TempDir(), "kube-proxy")
	build := exec.Command("go", "build", "-trimpath", "-o", path, "./cmd/kube-proxy")
	build.Dir, build.Env = repository, append(os.Environ(), "CGO_ENABLED=0") // as in make build, for the build cache
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build nftproxy: %v\n%s", err, out)
	}
	return newSide(t, "nftproxy", path)
}

// restart starts both proxies, with a configuration, on nodes without rules.
// kube-proxy is in mode iptables if the subject is, otherwise in mode nftables.
func (w *world) restart(t testing.TB, config string) {
	t.Helper()
	for i, s := range w.sides {
		s.stop()
		mode := labtest.SubjectMode()
		if i == 0 && mode != "iptables" {
			mode = "nftables"
		}
		s.start(t, inMode(mode, config))
	}
}

// inMode returns a configuration for another mode than nftables.
func inMode(mode, config string) string {
	return strings.NewReplacer("mode: nftables", "mode: "+mode, "nftables: {", mode+": {").Replace(config)
}

// advance changes the cluster and then the sentinel, and waits until both
// proxies serve the change.
func (w *world) advance(t testing.TB, changes []objects.Change) {
	t.Helper()
	for _, change := range changes {
		must.NoError(t, change(t.Context()))
	}
	mark, err := w.sentinel.Change(t.Context())
	must.NoError(t, err)
	for _, s := range w.sides {
		must.NoError(t, s.await(t.Context(), mark))
	}
}

func (s *side) await(ctx context.Context, mark objects.Mark) (err error) {
	const patience = 30 * time.Second
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err = mark.Served(ctx, s.Node1.Namespace); err == nil {
			return nil
		}
		if ended := s.process.Pause(10 * time.Millisecond); ended != nil {
			return ended
		}
	}
	return fmt.Errorf("%s has not written the last change: %w; log:\n%s", s.proxy, err, s.process.EndOfLog())
}
