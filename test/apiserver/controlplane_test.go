package apiserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/test/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/must"
)

// controlPlane is etcd and an API server, in a namespace that is a pod of one
// lab after the other. They take five seconds of processor time to start.
type controlPlane struct {
	*cluster.Cluster
	namespace *lab.Namespace
	dir       string
}

// idle are the control planes of tests that have ended.
var idle struct {
	sync.Mutex
	planes []*controlPlane
}

// attachControlPlane adds a pod with a control plane to a node. The control
// plane has no objects of earlier tests. The next test gets it if this one
// passes and leaves it reusable.
func attachControlPlane(t testing.TB, node *lab.Node) *cluster.Cluster {
	t.Helper()
	idle.Lock()
	var c *controlPlane
	if last := len(idle.planes) - 1; last >= 0 {
		c, idle.planes = idle.planes[last], idle.planes[:last]
	}
	idle.Unlock()
	known := c != nil
	if !known {
		ns, err := lab.NewNamespace("control-plane")
		must.NoError(t, err)
		c = &controlPlane{namespace: ns}
	}
	t.Cleanup(func() {
		if t.Failed() || !c.reusable() {
			must.NoError(t, c.close())
			return
		}
		idle.Lock()
		defer idle.Unlock()
		idle.planes = append(idle.planes, c)
	})
	pod := labtest.AddPodWith(t, node, lab.PodConfig{Name: c.namespace.Name, Namespace: c.namespace})
	t.Cleanup(func() { must.NoError(t, pod.Remove()) })
	if known {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must.NoError(t, c.Clear(ctx))
		return c.Cluster
	}
	var err error
	c.dir, err = os.MkdirTemp("", "nftproxy-apiserver-*")
	must.NoError(t, err)
	c.Cluster, err = cluster.Start(t.Context(), cluster.Config{
		Namespace: c.namespace, Programs: filepath.Dir(program("etcd")), Dir: filepath.Join(c.dir, "cluster"),
		ServiceRanges: lab.ServiceRanges(),
	})
	must.NoError(t, err)
	return c.Cluster
}

// reusable reports whether Clear makes the control plane like a new one: the
// first API server runs, and no other one, and there is no further namespace.
func (c *controlPlane) reusable() bool {
	if c.Cluster == nil || !c.Alone() {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	const ofNewCluster = 4 // default, kube-system, kube-public and kube-node-lease
	namespaces, err := c.Admin().CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	return err == nil && len(namespaces.Items) == ofNewCluster
}

// close ends the control plane and removes its files.
func (c *controlPlane) close() (err error) {
	if c.Cluster != nil {
		err = c.Cluster.Close()
	}
	return errors.Join(err, c.namespace.Close(), os.RemoveAll(c.dir))
}

// closeIdle ends the control planes of tests that have ended.
func closeIdle() error {
	var errs []error
	for _, c := range idle.planes {
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}
