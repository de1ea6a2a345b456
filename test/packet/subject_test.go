package packet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	kube "github.com/nftproxy/nftproxy/test/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/must"
)

// subject returns the path of the program that the tests run instead of the
// command of this module: a drop-in kube-proxy, with an API server instead of
// manifests (see test/conformance). It is empty by default.
func subject() string { return labtest.Subject() }

// subjectFlags returns the flags that the subject gets in every test. It must
// not change the limit of connections, which belongs to the host.
func subjectFlags() []string {
	flags := []string{"--proxy-mode=" + labtest.SubjectMode(), "--conntrack-max-per-core=0"}
	return append(flags, labtest.SubjectArgs()...)
}

// apiObjects are the objects of a cluster in an API server.
type apiObjects struct {
	*kube.Cluster
	written map[string][]*kube.Object // by manifest
}

// newAPIObjects starts an API server in a pod of node2.
func newAPIObjects(t testing.TB, l *lab.Lab) *apiObjects {
	t.Helper()
	programs, err := filepath.Abs("../../.cache/apiserver") // built by test/apiserver/build
	if err != nil {
		t.Fatal(err)
	}
	at := labtest.AddPod(t, l.Node2, "control-plane").Namespace
	c, err := kube.Start(t.Context(), kube.Config{
		Namespace: at, Programs: programs, Dir: filepath.Join(t.TempDir(), "cluster"),
		ServiceRanges: lab.ServiceRanges(),
	})
	must.NoError(t, err)
	must.Close(t, c)
	return &apiObjects{c, map[string][]*kube.Object{}}
}

// write replaces the objects of a manifest.
func (a *apiObjects) write(ctx context.Context, name, text string) error {
	objects, err := kube.Parse(text)
	if err == nil {
		err = a.APIServer.Apply(ctx, objects...)
	}
	if err != nil {
		return fmt.Errorf("%w:\n%s", err, text)
	}
	for _, old := range a.written[name] {
		remains := slices.ContainsFunc(objects, func(o *kube.Object) bool {
			return o.GetKind() == old.GetKind() && o.GetName() == old.GetName()
		})
		if !remains {
			err = errors.Join(err, a.APIServer.Delete(ctx, old))
		}
	}
	a.written[name] = objects
	return err
}

// awaitHealth waits until the subject is healthy. It may write its first rules
// later.
func (p *proxy) awaitHealth(t testing.TB) {
	t.Helper()
	p.eventually(t, func() error {
		response, _, err := p.at.Get(t.Context(), "http://127.0.0.1:10256/healthz", answerTimeout)
		if err == nil && response.StatusCode != http.StatusOK {
			err = errors.New(response.Status)
		}
		return err
	})
}
