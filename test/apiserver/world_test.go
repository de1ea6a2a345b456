package apiserver

import (
	"context"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/nftproxy/nftproxy/test/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// target is the port of the servers in pods.
const target = 8080

// world is a cluster network with an API server. No proxy runs yet.
type world struct {
	*lab.Lab
	*cluster.Cluster
	t      testing.TB
	pods   map[string]*lab.Pod
	client kubernetes.Interface // of the administrator
	token  string               // of the service account of the proxy
}

// newWorld creates a world with the Nodes node1 and node2, and with pods on
// both.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := newBareWorld(t)
	for _, node := range w.Nodes() {
		w.createNode(node)
	}
	return w
}

// newServedWorld creates a world with the Service web, which the subject
// serves.
func newServedWorld(t testing.TB) (*world, *service, *proxy) {
	t.Helper()
	w := newWorld(t)
	web := w.createService("web", "a1 b1")
	p := w.subject()
	p.startSynced()
	web.servedBy("a1 b1")
	return w, web, p
}

// newBareWorld creates a world without Nodes in the API.
func newBareWorld(t testing.TB) *world {
	t.Helper()
	w := &world{Lab: labtest.New(t), t: t}
	var err error
	w.pods, err = w.AddPods([]uint16{target}, "a1", "a2", "b1", "b2")
	w.must(err)
	w.Cluster, err = cluster.Start(t.Context(), cluster.Config{
		Namespace:     labtest.AddPod(t, w.Node2, "control-plane").Namespace,
		Programs:      filepath.Dir(program("etcd")),
		Dir:           filepath.Join(t.TempDir(), "cluster"),
		ServiceRanges: lab.ServiceRanges(),
	})
	w.must(err)
	t.Cleanup(func() {
		if err := w.Cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	w.client = w.Admin()
	w.token = w.deploy()
	t.Cleanup(func() { labtest.LogTables(t, w.Node1) })
	return w
}

// with returns the world with another client.
func (w *world) with(client kubernetes.Interface) *world {
	other := *w
	other.client = client
	return &other
}

// service returns a Service of another world in this one.
func (w *world) service(s *service) *service { return &service{Service: s.Service, w: w} }

// must ends the test on an error.
func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) ctx() context.Context { return w.t.Context() }

// The objects of deploy/ that the subject uses.
const (
	deployed         = repository + "/deploy/kustomize/base"
	accountNamespace = "kube-system"
	accountName      = "nftproxy"
	roleName         = "nftproxy"
)

// deploy applies deploy/ and returns a token of the proxy's service account.
// Without controllers, no pod is created.
func (w *world) deploy() string {
	w.t.Helper()
	folder, err := filepath.Abs(deployed)
	w.must(err)
	w.kubectl("", "apply", "--kustomize="+folder)
	token, err := w.Token(w.ctx(), accountNamespace, accountName)
	w.must(err)
	return token
}

// kubeconfig writes the subject's kubeconfig and returns its path.
func (w *world) kubeconfig() string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "kubeconfig")
	w.must(w.WriteKubeconfig(path, w.token))
	return path
}

// kubectl runs kubectl as administrator.
func (w *world) kubectl(stdin string, args ...string) string {
	w.t.Helper()
	out, err := w.Kubectl(w.ctx(), stdin, args...)
	w.must(err)
	return out
}

// run runs a program in a namespace and returns its standard output.
func (w *world) run(at *lab.Namespace, name string, args ...string) string {
	w.t.Helper()
	return labtest.Run(w.t, at, name, args...)
}

// tables returns all tables of a node, without elements that packets add.
func (w *world) tables(node *lab.Node) string {
	w.t.Helper()
	return w.run(node.Namespace, "nft", "--stateless", "list", "ruleset")
}

// expectTables compares the tables of node1 with earlier ones, unless the
// subject is foreign.
func (w *world) expectTables(when, want string) {
	w.t.Helper()
	if now := w.tables(w.Node1); now != want && !foreign() {
		w.t.Errorf("tables %s: got\n%s\nwant\n%s", when, now, want)
	}
}
