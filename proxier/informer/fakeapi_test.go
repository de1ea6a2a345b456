package informer

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
)

// newClient returns a client of the API server at a URL.
func newClient(t *testing.T, url string) *apiclient.Client {
	t.Helper()
	client, err := apiclient.New(&rest.Config{Host: url})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// serve returns a client of an API server.
func serve(t *testing.T, api fakeAPI) *apiclient.Client {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(func() {
		server.CloseClientConnections() // watches do not end
		server.Close()
	})
	return newClient(t, server.URL)
}

// fakeAPI is an API server that responds in JSON. It ignores selectors.
type fakeAPI struct {
	objects *fake.Clientset
	// watches are watches that began before the last list, by resource. The
	// next request for a watch gets them, so that no event is lost.
	watches *sync.Map
	broken  string // resource whose lists fail
}

func newFakeAPI(objects *fake.Clientset) fakeAPI {
	return fakeAPI{objects: objects, watches: new(sync.Map)}
}

// kinds are the kinds of objects, by resource.
var kinds = map[string]schema.GroupVersionKind{
	"services":       corev1.SchemeGroupVersion.WithKind("Service"),
	"nodes":          corev1.SchemeGroupVersion.WithKind("Node"),
	"endpointslices": discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
	"servicecidrs":   networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"),
}

func (f fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	var list runtime.Object
	var events watch.Interface
	var err error
	switch watching := r.URL.Query().Has("watch"); {
	case r.URL.Query().Has("sendInitialEvents"):
		err = apierrors.NewInvalid(schema.GroupKind{}, "", nil) // as API servers without this feature
	case watching:
		events, err = f.watch(path.Base(r.URL.Path))
	default:
		list, err = f.list(path.Base(r.URL.Path))
	}
	switch {
	case err != nil:
		refuse(w, err)
	case events != nil:
		f.send(w, r, events)
	default:
		_, _ = w.Write(encoded(runtime.ContentTypeJSON, list))
	}
}

// refuse sends an error.
func refuse(w http.ResponseWriter, err error) {
	status, ok := err.(*apierrors.StatusError)
	if !ok {
		status = apierrors.NewInternalError(err)
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(int(status.ErrStatus.Code))
	_, _ = w.Write(encoded(runtime.ContentTypeJSON, &status.ErrStatus))
}

// send sends the events of a watch until the client disconnects.
func (f fakeAPI) send(w http.ResponseWriter, r *http.Request, events watch.Interface) {
	defer events.Stop()
	for {
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case e := <-events.ResultChan():
			_ = json.NewEncoder(w).Encode(metav1.WatchEvent{
				Type: string(e.Type), Object: runtime.RawExtension{Raw: encoded(runtime.ContentTypeJSON, e.Object)},
			})
		}
	}
}

func (f fakeAPI) list(resource string) (runtime.Object, error) {
	if resource == f.broken {
		return nil, errors.New("not now")
	}
	events, err := f.open(resource)
	if err != nil {
		return nil, err
	}
	if before, ok := f.watches.Swap(resource, events); ok {
		before.(watch.Interface).Stop()
	}
	kind := kinds[resource]
	return f.objects.Tracker().List(kind.GroupVersion().WithResource(resource), kind, "")
}

// watch returns the events since the last list, or from now on.
func (f fakeAPI) watch(resource string) (watch.Interface, error) {
	if events, ok := f.watches.LoadAndDelete(resource); ok {
		return events.(watch.Interface), nil
	}
	return f.open(resource)
}

func (f fakeAPI) open(resource string) (watch.Interface, error) {
	return f.objects.Tracker().Watch(kinds[resource].GroupVersion().WithResource(resource), "")
}
