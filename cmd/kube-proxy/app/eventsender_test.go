package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
)

// eventAPI is an API server that keeps events. It runs without a network.
type eventAPI struct {
	requests []string // method and note
	events   map[string]eventsv1.Event
	broken   string // namespace in which each request fails
	failures int    // requests for this namespace

	down   atomic.Bool  // no request reaches it
	lossy  atomic.Bool  // no response arrives
	status atomic.Int32 // of every response, if not 0
}

func (a *eventAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.down.Load() {
		return nil, errors.New("connection refused")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	code := a.handle(r.Method, r.URL.Path, body)
	if a.lossy.Load() {
		return nil, errors.New("connection reset by peer")
	}
	return &http.Response{
		StatusCode: code, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)),
	}, nil
}

func (a *eventAPI) handle(method, path string, body []byte) (code int) {
	var event eventsv1.Event
	if method == http.MethodPatch {
		var found bool
		if event, found = a.events[path]; !found {
			return http.StatusNotFound
		}
	}
	if err := json.Unmarshal(body, &event); err != nil {
		return http.StatusUnprocessableEntity
	}
	if status := a.status.Load(); status != 0 {
		return int(status)
	}
	if a.broken != "" && event.Namespace == a.broken {
		a.failures++
		return http.StatusInternalServerError
	}
	a.requests = append(a.requests, method+" "+event.Note)
	if method == http.MethodPost {
		path += "/" + event.Name
		if _, found := a.events[path]; found {
			return http.StatusConflict
		}
	}
	a.events[path] = event
	return http.StatusOK
}

// only returns the only event.
func (a *eventAPI) only(t *testing.T) eventsv1.Event {
	t.Helper()
	if len(a.events) != 1 {
		t.Fatalf("got %d events, want 1", len(a.events))
	}
	for _, e := range a.events {
		return e
	}
	panic("unreachable")
}

// testSender calls f with an API server and a running eventRecorder. Time
// passes when all of them wait.
func testSender(t *testing.T, f func(api *eventAPI, s *eventRecorder)) {
	synctest.Test(t, func(t *testing.T) {
		api := &eventAPI{events: make(map[string]eventsv1.Event)}
		client, err := apiclient.New(&rest.Config{
			Transport: api, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
		})
		if err != nil {
			t.Fatal(err)
		}
		s := newEventRecorder(client.Events)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			s.run(ctx)
			close(done)
		}()
		f(api, s)
		stop()
		<-done
	})
}

// recordWarning records a warning about a Service in the namespace default.
func recordWarning(s *eventRecorder, name, note string) { recordWarningIn(s, "default", name, note) }

func recordWarningIn(s *eventRecorder, namespace, name, note string) {
	s.add(&corev1.ObjectReference{Kind: "Service", Namespace: namespace, Name: name},
		corev1.EventTypeWarning, "AddressConflict", "ProgramServices", note)
	synctest.Wait()
}

func TestSendEvent(t *testing.T) {
	testSender(t, func(api *eventAPI, s *eventRecorder) {
		s.add(nodeReference("n1"), corev1.EventTypeNormal, "Starting", "StartKubeProxy", "")
		synctest.Wait()
		e := api.only(t)
		if e.Namespace != "default" || e.Regarding.Name != "n1" || e.Reason != "Starting" ||
			e.Action != "StartKubeProxy" ||
			e.Type != corev1.EventTypeNormal || e.ReportingController != "kube-proxy" || e.EventTime.IsZero() {
			t.Errorf("got event %+v", e)
		}
	})
}

// Equal events are one object with a counter, until it is deleted or there
// was none for a while.
func TestEventSeries(t *testing.T) {
	const create, count = "POST ", "PATCH "
	testSender(t, func(api *eventAPI, s *eventRecorder) {
		for range 3 {
			recordWarning(s, "web", "a")
			time.Sleep(seriesEnd)
		}
		e := api.only(t)
		if e.Series == nil || e.Series.Count != 3 || e.Series.LastObservedTime.Sub(e.EventTime.Time) != 2*seriesEnd {
			t.Errorf("got series %+v since %v, want 3 events", e.Series, e.EventTime)
		}
		recordWarning(s, "web", "b")
		clear(api.events)
		recordWarning(s, "web", "b")
		time.Sleep(seriesEnd + time.Second)
		recordWarning(s, "web", "b")
		want := []string{create + "a", count + "a", count + "a", create + "b", create + "b", create + "b"}
		if !slices.Equal(api.requests, want) {
			t.Errorf("got requests %q, want %q", api.requests, want)
		}
	})
}

// Events wait for an API server that is unreachable. A namespace alone has half
// of the places; what it has too much takes none of another one.
func TestEventsWithoutAPIServer(t *testing.T) {
	testSender(t, func(api *eventAPI, s *eventRecorder) {
		api.down.Store(true)
		for range maxPending + 10 {
			recordWarning(s, "web", "a")
		}
		recordWarning(s, "web", "dropped")
		recordWarningIn(s, "other", "web", "not dropped")
		api.down.Store(false)
		time.Sleep(minPause)
		synctest.Wait()
		if len(api.events) != 2 {
			t.Errorf("got %d events, want one of each namespace", len(api.events))
		}
		maps.DeleteFunc(api.events, func(_ string, e eventsv1.Event) bool { return e.Note == "not dropped" })
		if e := api.only(t); e.Series == nil || e.Series.Count != maxPending/2 {
			t.Errorf("got series %+v, want %d events", e.Series, maxPending/2)
		}
		recordWarning(s, "api", "not dropped")
		if len(api.events) != 2 {
			t.Errorf("got %d events, want another one", len(api.events))
		}
	})
}

// An event that always fails is tried a limited number of times, and does not
// delay or displace others. The log mentions it twice.
func TestFailingEvent(t *testing.T) {
	var lines []string
	klog.SetLogger(funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
	defer klog.ClearLogger()
	testSender(t, func(api *eventAPI, s *eventRecorder) {
		api.broken = "broken"
		recordWarningIn(s, "broken", "web", "a")
		for i := range 2000 {
			recordWarning(s, "web", "b")
			if e := api.only(t); e.Note != "b" || e.Series == nil && i > 0 || e.Series != nil &&
				int(e.Series.Count) != i+1 {
				t.Fatalf("got event %+v, want %d of others", e, i+1)
			}
			time.Sleep(10 * time.Second)
		}
		if api.failures != 12 || s.pending.Left() != maxPending {
			t.Errorf("got %d requests and %d pending events, want 12 and 0", api.failures, maxPending-s.pending.Left())
		}
	})
	if len(lines) != 2 {
		t.Errorf("got log %q, want 2 lines", lines)
	}
}

// An event that the API server rejects does not delay others. Events wait for
// an API server that is overloaded or fails.
func TestStatusOfEventAPI(t *testing.T) {
	for status, waits := range map[int32]bool{
		http.StatusForbidden: false, http.StatusNotFound: false, http.StatusConflict: false,
		http.StatusUnprocessableEntity: false,
		http.StatusTooManyRequests:     true, http.StatusInternalServerError: true, http.StatusServiceUnavailable: true,
		http.StatusGatewayTimeout: true,
	} {
		t.Run(http.StatusText(int(status)), func(t *testing.T) {
			testSender(t, func(api *eventAPI, s *eventRecorder) {
				api.status.Store(status)
				recordWarning(s, "web", "a")
				api.status.Store(0)
				want := "a"
				if !waits {
					recordWarning(s, "web", "b")
					want = "b"
				}
				time.Sleep(minPause)
				synctest.Wait()
				api.only(t)
				time.Sleep(time.Hour)
				synctest.Wait()
				if e := api.only(t); e.Note != want || s.pending.Left() != maxPending {
					t.Errorf("got event %q and %d pending ones, want %s and none",
						e.Note, maxPending-s.pending.Left(), want)
				}
			})
		})
	}
}

// If the response to the creation of an event is lost, the event exists when it
// is sent again. Equal events are then added to it.
func TestLostResponse(t *testing.T) {
	testSender(t, func(api *eventAPI, s *eventRecorder) {
		api.lossy.Store(true)
		recordWarning(s, "web", "a")
		api.lossy.Store(false)
		time.Sleep(minPause)
		synctest.Wait()
		recordWarning(s, "web", "a")
		if e := api.only(t); e.Series == nil || e.Series.Count != 2 {
			t.Errorf("got series %+v, want 2 events", e.Series)
		}
	})
}
