package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/test/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/script"
)

// target is the port of the servers in pods.
const target = 8080

// world is a cluster network with an API server. No proxy runs yet.
type world struct {
	*lab.Lab
	*cluster.Cluster
	t        testing.TB
	script   *script.Script // that runs; nil in a test without a script
	pods     map[string]*lab.Pod
	services map[string]*corev1.Service // by name, as the API server last returned them
	// other is the second API server, while it runs. It gets all changes then.
	other *cluster.APIServer
	token string // of the service account of the proxy
	// config is the kubeconfig file of the proxy.
	config string
}

// newWorld creates a world with the Nodes node1 and node2, and with pods on
// both.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := newBareWorld(t)
	for _, node := range w.Nodes() {
		w.must(w.CreateNode(w.ctx(), node.Namespace, node.PodRanges...))
	}
	return w
}

// newBareWorld creates a world without Nodes in the API.
func newBareWorld(t testing.TB) *world {
	t.Helper()
	w := &world{Lab: labtest.New(t), t: t, services: map[string]*corev1.Service{}}
	var err error
	w.pods, err = w.AddPods([]uint16{target}, "a1", "a2", "b1", "b2")
	w.must(err)
	w.Cluster = attachControlPlane(t, w.Node2)
	w.deploy()
	t.Cleanup(func() { labtest.LogTables(t, w.Node1) })
	return w
}

// must ends the test on an error.
func (w *world) must(err error) {
	w.t.Helper()
	switch {
	case err == nil:
	case w.script != nil:
		w.script.Fatalf("%v", err)
	default:
		w.t.Fatal(err)
	}
}

func (w *world) ctx() context.Context { return w.t.Context() }

// at returns the namespace of the client, a node or a pod.
func (w *world) at(name string) *lab.Namespace {
	w.t.Helper()
	all := map[string]*lab.Namespace{"client": w.Client, "node1": w.Node1.Namespace, "node2": w.Node2.Namespace}
	for pod := range maps.Values(w.pods) {
		all[pod.Name] = pod.Namespace
	}
	if all[name] == nil {
		w.must(fmt.Errorf("got %q, want client, a node or a pod", name))
	}
	return all[name]
}

// The objects of deploy/ that the subject uses.
const (
	deployed         = repository + "/deploy/kustomize/base"
	accountNamespace = "kube-system"
	accountName      = "nftproxy"
)

// deployedManifests are the manifests of deployed.
var deployedManifests = sync.OnceValues(func() (string, error) {
	out, err := exec.Command(program("kubectl"), "kustomize", deployed).Output()
	return string(out), err
})

// deploy applies deploy/ and writes the kubeconfig of the proxy's service
// account. Without controllers, no pod is created.
func (w *world) deploy() {
	w.t.Helper()
	manifests, err := deployedManifests()
	w.must(err)
	w.apply(manifests)
	w.token, err = w.Token(w.ctx(), accountNamespace, accountName)
	w.must(err)
	w.config = filepath.Join(w.t.TempDir(), "kubeconfig")
	w.must(w.WriteKubeconfig(w.config, w.token))
}

// apply applies manifests.
func (w *world) apply(manifests string) {
	w.t.Helper()
	objects, err := cluster.Parse(manifests)
	w.must(err)
	w.must(w.server().Apply(w.ctx(), objects...))
}

// server returns the API server that gets all changes.
func (w *world) server() *cluster.APIServer { return cmp.Or(w.other, w.APIServer) }

// kubectl runs kubectl as administrator.
func (w *world) kubectl(stdin string, args ...string) string {
	w.t.Helper()
	if w.other != nil {
		args = append(args, fmt.Sprintf("--server=https://%s:%d", "127.0.0.1", w.other.Port))
	}
	out, err := w.Kubectl(w.ctx(), stdin, args...)
	w.must(err)
	return out
}

// run runs a program in a namespace and returns its standard output.
func (w *world) run(at *lab.Namespace, name string, args ...string) string {
	w.t.Helper()
	return labtest.Run(w.t, at, name, args...)
}

// tables returns all tables of node1, without elements that packets add.
func (w *world) tables() string {
	w.t.Helper()
	return w.run(w.Node1.Namespace, "nft", "--stateless", "list", "ruleset")
}

// ranges returns the ranges of pods, separated by commas.
func ranges() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(lab.PodRanges()), " ", ","), "[]")
}
