package apiserver

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/apiserver/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// target is the port on which pods serve.
const target = 8080

// world is a cluster network with an API server. No proxy runs yet.
type world struct {
	*lab.Lab
	*cluster.Cluster
	t     testing.TB
	pods  map[string]*lab.Pod
	token string // of the service account of the proxy
}

// newWorld makes a world with the Nodes node1 and node2 and pods that serve on both.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := newBareWorld(t)
	for _, node := range w.Nodes() {
		w.createNode(node)
	}
	return w
}

// newBareWorld makes a world without Nodes in the API.
func newBareWorld(t testing.TB) *world {
	t.Helper()
	w := &world{Lab: labtest.New(t), t: t, pods: map[string]*lab.Pod{}}
	for _, name := range []string{"a1", "a2"} {
		w.addPod(w.Node1, name)
	}
	for _, name := range []string{"b1", "b2"} {
		w.addPod(w.Node2, name)
	}
	var err error
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
	w.token = w.deploy()
	t.Cleanup(w.showTables)
	return w
}

// must ends the test on an error.
func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) ctx() context.Context { return w.t.Context() }

func (w *world) addPod(node *lab.Node, name string) {
	w.t.Helper()
	w.pods[name] = labtest.AddPod(w.t, node, name)
	labtest.Serve(w.t, target, w.pods[name].Namespace)
}

// What deploy/ makes, and the subject uses.
const (
	deployed         = repository + "/deploy/kustomize/base"
	accountNamespace = "kube-system"
	accountName      = "nftproxy"
	roleName         = "nftproxy"
)

// deploy applies what is to be applied to a cluster, and returns a token of the proxy's service account. There are no controllers: no pod
// comes of it.
func (w *world) deploy() string {
	w.t.Helper()
	folder, err := filepath.Abs(deployed)
	w.must(err)
	w.kubectl("", "apply", "--kustomize="+folder)
	token, err := w.Token(w.ctx(), accountNamespace, accountName)
	w.must(err)
	return token
}

// kubeconfig writes the file by which the subject reaches the API server.
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

// run runs a program in a namespace and returns its output.
func (w *world) run(at *lab.Namespace, name string, args ...string) string {
	w.t.Helper()
	cmd := at.Command(w.ctx(), name, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("%s %s in %s: %v\n%s", name, strings.Join(args, " "), at.Name, err, &errs)
	}
	return string(out)
}

// tables lists all tables of a node, without what packets change.
func (w *world) tables(node *lab.Node) string {
	w.t.Helper()
	return w.run(node.Namespace, "nft", "--stateless", "list", "ruleset")
}

// showTables tells what node1's tables were when a test failed, unless they are long.
func (w *world) showTables() {
	if !w.t.Failed() {
		return
	}
	const long = 30_000
	out, err := w.Node1.Command(context.Background(), "nft", "list", "ruleset").CombinedOutput()
	if len(out) > long {
		out = append(out[:long], "..."...)
	}
	w.t.Logf("rules of node1 (%v):\n%s", err, out)
}
