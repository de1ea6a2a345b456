package cluster_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/test/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/must"
)

// programs is the folder of the programs that test/apiserver/build makes.
const programs = "../../../.cache/apiserver"

func start(t *testing.T) (*cluster.Cluster, *lab.Lab) {
	t.Helper()
	l := labtest.New(t)
	at := labtest.AddPod(t, l.Node2, "control-plane")
	folder, err := filepath.Abs(programs)
	must.NoError(t, err)
	c, err := cluster.Start(t.Context(), cluster.Config{
		Namespace: at.Namespace, Programs: folder, Dir: t.TempDir(), ServiceRanges: lab.ServiceRanges(),
	})
	must.NoError(t, err)
	must.Close(t, c)
	return c, l
}

// TestCluster uses one API server after the other.
func TestCluster(t *testing.T) {
	c, l := start(t)
	ctx := t.Context()
	admin := c.Admin()

	t.Run("roles authorize service accounts", func(t *testing.T) {
		const account = "reader"
		kubectl(t, c, "create", "serviceaccount", account)
		token, err := c.Token(ctx, "default", account)
		must.NoError(t, err)
		list := []string{"get", "services", "--all-namespaces", "--output=name", "--token=" + token}
		if _, err := c.Kubectl(ctx, "", list...); err == nil || !strings.Contains(err.Error(), "Forbidden") {
			t.Errorf("without a role: got %v, want Forbidden", err)
		}
		kubectl(t, c, "create", "clusterrolebinding", account, "--clusterrole=system:node-proxier",
			"--serviceaccount=default:"+account)
		if got := kubectl(t, c, list...); got != "service/kubernetes\n" {
			t.Errorf("got services %q", got)
		}
		expectRequests(t, c.APIServer, "/api/v1/services", false, true)
	})

	changed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "changed"}}
	created, err := admin.CoreV1().ConfigMaps("default").Create(ctx, changed, metav1.CreateOptions{})
	must.NoError(t, err)

	t.Run("API servers share objects", func(t *testing.T) {
		must.NoError(t, c.APIServer.Kill())
		if _, err := admin.CoreV1().ConfigMaps("default").Get(ctx, "changed", metav1.GetOptions{}); err == nil {
			t.Error("a killed API server answers")
		}
		other, err := c.StartAPIServer(ctx, 6444)
		must.NoError(t, err)
		changed.Data = map[string]string{"by": "the other one"}
		_, err = other.Client.CoreV1().ConfigMaps("default").Update(ctx, changed, metav1.UpdateOptions{})
		must.NoError(t, err)
		must.NoError(t, other.Stop())
	})

	t.Run("watches from compacted revisions end", func(t *testing.T) {
		must.NoError(t, c.Compact(ctx))
		must.NoError(t, c.APIServer.Start(ctx))
		got, err := admin.CoreV1().ConfigMaps("default").Get(ctx, "changed", metav1.GetOptions{})
		must.NoError(t, err)
		if got.Data["by"] != "the other one" {
			t.Errorf("got data %v, want those that the other API server wrote", got.Data)
		}
		options := metav1.ListOptions{ResourceVersion: created.ResourceVersion}
		watch, err := admin.CoreV1().ConfigMaps("").Watch(ctx, options)
		if err == nil {
			defer watch.Stop()
			event := <-watch.ResultChan()
			err = apierrors.FromObject(event.Object)
		}
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			t.Errorf("watch from a compacted revision: got %v, want 410", err)
		}
	})

	t.Run("networks break and heal", func(t *testing.T) {
		client, err := c.Connect(l.Node1.Namespace)
		must.NoError(t, err)
		list := func() error {
			ctx, cancel := context.WithTimeout(ctx, lab.DefaultTimeout)
			defer cancel()
			_, err := client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
			return err
		}
		must.NoError(t, list())
		must.NoError(t, c.Isolate(l.Node1.Namespace))
		if err := list(); err == nil {
			t.Error("got an answer on an isolated node")
		}
		must.NoError(t, c.Rejoin(l.Node1.Namespace))
		if err := list(); err != nil {
			t.Errorf("after Rejoin: %v", err)
		}
	})
}

// kubectl runs kubectl, which must succeed, and returns its output.
func kubectl(t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), "", args...)
	must.NoError(t, err)
	return out
}

// expectRequests compares the authorizer's decisions on requests for a path.
func expectRequests(t *testing.T, server *cluster.APIServer, path string, want ...bool) {
	t.Helper()
	requests, err := server.Requests()
	must.NoError(t, err)
	var got []bool
	for _, r := range requests {
		if strings.HasPrefix(r.URI, path) {
			got = append(got, r.Allowed())
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("requests for %s: got allowed %v, want %v: %v", path, got, want, requests)
	}
}
