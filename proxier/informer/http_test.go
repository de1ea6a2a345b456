package informer

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// apiServer responds to lists with three EndpointSlices. Its watches have no
// events.
type apiServer struct {
	mode string // "protobuf", "json", "pages", "cut" or "too large"

	mu    sync.Mutex
	lists []*http.Request // guarded by mu
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Has("watch") {
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	s.mu.Lock()
	s.lists = append(s.lists, r)
	n := len(s.lists)
	s.mu.Unlock()
	list, mediaType := sliceList(3), runtime.ContentTypeProtobuf
	list.Continue = ""
	switch s.mode {
	case "json":
		mediaType = runtime.ContentTypeJSON
	case "pages":
		if !query.Has("continue") {
			list.Items, list.Continue = list.Items[:2], "more"
		} else {
			list.Items = list.Items[2:]
		}
	case "cut":
		if n == 1 {
			text := encoded(mediaType, list)
			w.Header().Set("Content-Length", strconv.Itoa(len(text)))
			w.Write(text[:len(text)/2])
			panic(http.ErrAbortHandler)
		}
	case "too large":
		if query.Get("resourceVersion") != "" {
			late := apierrors.NewTimeoutError("too large resource version", 1)
			late.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
			refuse(w, late)
			return
		}
	}
	w.Header().Set("Content-Type", mediaType)
	w.Write(encoded(mediaType, list))
}

// Each object of a list is delivered once, and lists are requested in
// protobuf, whatever the API server responds.
func TestListsByHTTP(t *testing.T) {
	for mode, wantLists := range map[string]int{"protobuf": 1, "json": 1, "pages": 2, "cut": 2, "too large": 2} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := &apiServer{mode: mode}
			server := httptest.NewServer(s)
			defer server.Close()
			client := newClient(t, server.URL)
			r := new(recorder)
			source := &Source{config: Config{Client: client}}
			synced := watchKind(source, endpointSlices, r.SetEndpointSlice, r.DeleteEndpointSlice)
			ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
			defer stop()
			var running sync.WaitGroup
			running.Go(func() { source.reflectors[0].RunWithContext(ctx) })
			if !waitFor(ctx, 0, synced) {
				t.Error("timed out waiting for the first list")
			}
			stop()
			running.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(r.calls) != 3 || len(s.lists) != wantLists {
				t.Errorf("got calls %q after %d lists, want 3 after %d", r.calls, len(s.lists), wantLists)
			}
			for _, list := range s.lists {
				if accept := list.Header.Get("Accept"); !strings.HasPrefix(accept, runtime.ContentTypeProtobuf) {
					t.Errorf("got a list request for %q, want protobuf", accept)
				}
			}
		})
	}
}

// Lists and watches have the selectors of kube-proxy v1.37.2
// (cmd/kube-proxy/app/server.go).
func TestSelectors(t *testing.T) {
	client, all := newClient(t, "http://192.0.2.1"), metav1.ListOptions{}
	for _, tt := range []struct {
		request       *rest.Request
		labels, field string
	}{
		{services.request(client, all), "!service.kubernetes.io/service-proxy-name", "spec.clusterIP!=None"},
		{endpointSlices.request(client, all), "!service.kubernetes.io/headless", ""},
	} {
		query := tt.request.URL().Query()
		labels, field := query.Get("labelSelector"), query.Get("fieldSelector")
		if labels != tt.labels || field != tt.field {
			t.Errorf("%s: got selectors %q and %q, want %q and %q",
				tt.request.URL(), labels, field, tt.labels, tt.field)
		}
	}
}
