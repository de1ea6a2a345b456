package packet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	kube "github.com/nftproxy/nftproxy/test/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
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
	client     dynamic.Interface
	kubeconfig string
	written    map[string][]*unstructured.Unstructured // by manifest
}

// newAPIObjects starts an API server in a pod of node2.
func newAPIObjects(t testing.TB, l *lab.Lab) *apiObjects {
	t.Helper()
	programs, err := filepath.Abs("../../.cache/apiserver") // built by test/apiserver/build
	if err != nil {
		t.Fatal(err)
	}
	at := labtest.AddPod(t, l.Node2, "control-plane").Namespace
	server, err := kube.Start(t.Context(), kube.Config{
		Namespace: at, Programs: programs, Dir: filepath.Join(t.TempDir(), "cluster"),
		ServiceRanges: lab.ServiceRanges(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	config, err := clientcmd.BuildConfigFromFlags("", server.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.Dial, config.QPS = at.DialContext, -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &apiObjects{
		client: client, kubeconfig: server.AdminKubeconfig(), written: map[string][]*unstructured.Unstructured{},
	}
}

// write replaces the objects of a manifest.
func (a *apiObjects) write(ctx context.Context, name, text string) error {
	old := map[string]*unstructured.Unstructured{}
	for _, object := range a.written[name] {
		old[object.GetKind()+object.GetName()] = object
	}
	a.written[name] = nil
	for document := range strings.SplitSeq(text, "---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			return fmt.Errorf("%w in\n%s", err, document)
		}
		if len(object.Object) == 0 {
			continue
		}
		if err := a.put(ctx, object); err != nil {
			return fmt.Errorf("%w:\n%s", err, document)
		}
		a.written[name] = append(a.written[name], object)
		delete(old, object.GetKind()+object.GetName())
	}
	for _, object := range old {
		if err := a.api(object).Delete(ctx, object.GetName(), metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// api returns the client of objects of a kind.
func (a *apiObjects) api(object *unstructured.Unstructured) dynamic.ResourceInterface {
	kind := object.GroupVersionKind()
	resource := a.client.Resource(schema.GroupVersionResource{
		Group: kind.Group, Version: kind.Version, Resource: strings.ToLower(kind.Kind) + "s",
	})
	if kind.Kind == "Service" || kind.Kind == "EndpointSlice" {
		return resource.Namespace(metav1.NamespaceDefault)
	}
	return resource
}

// put creates an object, or changes it. A change that the API does not allow
// deletes and creates it.
func (a *apiObjects) put(ctx context.Context, object *unstructured.Unstructured) error {
	api := a.api(object)
	live, err := api.Get(ctx, object.GetName(), metav1.GetOptions{})
	if err == nil {
		next := object.DeepCopy()
		next.SetResourceVersion(live.GetResourceVersion())
		live, err = api.Update(ctx, next, metav1.UpdateOptions{})
		if apierrors.IsInvalid(err) {
			if err := api.Delete(ctx, object.GetName(), metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
	}
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		live, err = api.Create(ctx, object, metav1.CreateOptions{})
	}
	if status, ok := object.Object["status"]; err == nil && ok {
		live.Object["status"] = status
		_, err = api.UpdateStatus(ctx, live, metav1.UpdateOptions{})
	}
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
