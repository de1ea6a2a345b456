package informer

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
)

// expiredAPI is an API server that responds to each watch that the version is
// expired (410 Gone). It runs without a network.
type expiredAPI struct {
	fakeAPI
	asEvent bool // in an event of the watch, not in its status

	mu       sync.Mutex
	requests map[string][]string // "list" or "watch", by resource and field selector
}

func (a *expiredAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(10 * time.Millisecond) // the network
	verb, resource := "list", path.Base(r.URL.Path)
	if r.URL.Query().Has("watch") {
		verb = "watch"
	}
	a.mu.Lock()
	selected := strings.TrimSpace(resource + " " + r.URL.Query().Get("fieldSelector"))
	a.requests[selected] = append(a.requests[selected], verb)
	a.mu.Unlock()
	w := httptest.NewRecorder()
	expired := apierrors.NewResourceExpired("too old resource version")
	switch {
	case verb == "list":
		a.ServeHTTP(w, r)
	case a.asEvent:
		status := runtime.RawExtension{Raw: encoded(runtime.ContentTypeJSON, &expired.ErrStatus)}
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		_ = json.NewEncoder(w).Encode(metav1.WatchEvent{Type: "ERROR", Object: status})
	default:
		refuse(w, expired)
	}
	return w.Result(), nil
}

// run runs a Source for some time.
func (a *expiredAPI) run(t *testing.T, d time.Duration) *recorder {
	t.Helper()
	a.requests = make(map[string][]string)
	client, err := apiclient.New(&rest.Config{Transport: a})
	if err != nil {
		t.Fatal(err)
	}
	r := startWith(t, client, func(*Config) {})
	time.Sleep(d)
	synctest.Wait()
	return r
}

// An API server may have no ServiceCIDRs.
func TestMissingServiceCIDRs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &expiredAPI{fakeAPI: newFakeAPI(objects(testNode(1)))}
		api.broken = "servicecidrs"
		if r := api.run(t, 2*serviceCIDRsTimeout); r.count("services synced") != 1 {
			t.Errorf("got calls %q, want services synced", r.calls)
		}
	})
}

// A list follows each watch whose version is expired, after a backoff.
func TestExpiredWatches(t *testing.T) {
	for name, asEvent := range map[string]bool{"status": false, "event": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &expiredAPI{fakeAPI: newFakeAPI(objects(testNode(1))), asEvent: asEvent}
				r := api.run(t, 2*time.Minute)
				for resource, requests := range api.requests {
					for i, verb := range requests {
						if want := []string{"list", "watch"}[i%2]; verb != want {
							t.Fatalf("%s: got %q as request %d of %q, want %q", resource, verb, i, requests[:i+1], want)
						}
					}
					if n := len(requests); n < 8 || n > 40 {
						t.Errorf("%s: got %d requests in 2 minutes, want 8 to 40", resource, n)
					}
				}
				ownNode := api.requests["nodes metadata.name=n1"]
				if len(api.requests) != 4 || ownNode == nil || r.count("services synced") != 1 {
					t.Errorf("got requests %q and calls %q, want all objects", api.requests, r.calls)
				}
			})
		})
	}
}
