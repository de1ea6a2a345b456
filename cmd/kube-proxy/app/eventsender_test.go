package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
	"github.com/nftproxy/nftproxy/test/script"
)

// eventAPI is an API server that keeps events. It runs without a network.
type eventAPI struct {
	mu       sync.Mutex // guards the fields below
	state    string     // up, down (no request reaches it), lossy (no response arrives), or its status
	broken   string     // namespace in which each request fails
	failures int        // requests for this namespace
	requests []string   // method and note
	events   map[string]eventsv1.Event
}

func (a *eventAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == "down" {
		return nil, errors.New("connection refused")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	code := a.handle(r.Method, r.URL.Path, body)
	if a.state == "lossy" {
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
	if status, err := strconv.Atoi(a.state); err == nil {
		return status
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

// eventStory is a script about a running eventRecorder.
type eventStory struct {
	*eventRecorder
	api *eventAPI
}

// TestEvents runs the scripts about events, with a fake clock. These are their
// steps. OBJECT is NAMESPACE/NAME.
//
//	start NODE                   records that a proxy starts
//	record KIND OBJECT NOTE      records an event within the limits
//	conflicts FIRST STEP N [PAUSE]  records N conflicts within the limits: of Services FIRST, FIRST+STEP, …
//	                             of ten namespaces, with pauses
//	warn OBJECT NOTE             records an event without limits
//	warnings OBJECT NOTE N PAUSE records N equal events, with pauses
//	api up|down|lossy|STATUS     sets what happens to requests
//	break NAMESPACE              makes the requests for a namespace fail
//	forget                       makes the API server delete its events
//	pass DURATION
//	events, objects              prints the events of the API server: number and time, or their objects
//	requests                     prints the requests since the last time
//	sent LEAST MOST              compares their number
//	failures, pending            prints numbers of requests that failed, and events that wait
//	logged TEXT                  prints the number of lines in the log
func TestEvents(t *testing.T) {
	var mu sync.Mutex
	var log strings.Builder
	klog.SetLogger(funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(&log, line)
	}, funcr.Options{}))
	t.Cleanup(klog.ClearLogger)
	setup := func(e *script.Env) (map[string]script.Command, error) {
		s, err := newEventStory(e.T)
		steps := script.Steps(map[string]any{
			"start": s.start, "record": s.record, "conflicts": s.conflicts, "warnings": s.warn,
			"warn":   func(object, note string) { s.warn(object, note, 1, 0) },
			"api":    s.change(func(state string) { s.api.state = state }),
			"break":  s.change(func(namespace string) { s.api.broken = namespace }),
			"forget": s.change(func(string) { clear(s.api.events) }),
			"pass":   pass, "events": s.listed, "objects": s.objects,
			"requests": s.taken, "sent": s.sent, "failures": s.failures,
			"pending": func() int { return maxPending - s.pending.Left() },
			"logged": func(text string) int {
				mu.Lock()
				defer mu.Unlock()
				return strings.Count(log.String(), text)
			},
		})
		return steps, err
	}
	script.Run(t, script.Suite{Dir: "testdata/events", FakeClock: true, Setup: setup})
}

// newEventStory runs an eventRecorder until the test ends.
func newEventStory(t testing.TB) (*eventStory, error) {
	api := &eventAPI{state: "up", events: make(map[string]eventsv1.Event)}
	client, err := apiclient.New(&rest.Config{
		Transport: api, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	})
	if err != nil {
		return nil, err
	}
	r := newEventRecorder(client.Events)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return &eventStory{r, api}, nil
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (s *eventStory) start(node string) {
	s.recordStart(node)
	synctest.Wait()
}

func (s *eventStory) record(kind, object, note string) {
	namespace, name, _ := strings.Cut(object, "/")
	s.Record(cluster.Event{
		Kind: kind, Namespace: namespace, Name: name, UID: "u", Reason: cluster.ReasonRefused, Note: note,
	})
	synctest.Wait()
}

func (s *eventStory) conflicts(first, step, n int, pause ...time.Duration) {
	for i := range n {
		for _, d := range pause {
			time.Sleep(d)
		}
		s.Record(conflict(first + i*step))
	}
	synctest.Wait()
}

// warn records equal warnings about a Service, with its namespace as the
// reason.
func (s *eventStory) warn(object, note string, times int, pause time.Duration) {
	namespace, name, _ := strings.Cut(object, "/")
	for range times {
		s.add(&corev1.ObjectReference{Kind: "Service", Namespace: namespace, Name: name},
			corev1.EventTypeWarning, "In-"+namespace, "ProgramServices", note)
		pass(pause)
	}
}

// change is a step that changes the API server.
func (s *eventStory) change(f func(value string)) func(value ...string) {
	return func(value ...string) {
		s.api.mu.Lock()
		defer s.api.mu.Unlock()
		f(strings.Join(value, ""))
	}
}

// lines returns a line for each event, in order.
func (s *eventStory) lines(text func(*eventsv1.Event) string) string {
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	var all []string
	for e := range maps.Values(s.api.events) {
		all = append(all, text(&e)+"\n")
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

func (s *eventStory) listed() string {
	return s.lines(func(e *eventsv1.Event) string {
		text := fmt.Sprintf("%s/%s %s", e.Namespace, e.Regarding.Name, e.Note)
		if e.Series != nil {
			text += fmt.Sprintf(" %d in %v", e.Series.Count, e.Series.LastObservedTime.Sub(e.EventTime.Time))
		}
		return text
	})
}

func (s *eventStory) objects() string {
	return s.lines(func(e *eventsv1.Event) string {
		r := &e.Regarding
		return fmt.Sprintf("%s: %s %s %s of %s %s %s/%s %s by %s at %d", e.Namespace, e.Type, e.Reason, e.Action,
			r.APIVersion, r.Kind, r.Namespace, r.Name, r.UID, e.ReportingController, e.EventTime.Unix())
	})
}

// taken returns the requests since it was called last.
func (s *eventStory) taken() string {
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	defer func() { s.api.requests = nil }()
	return strings.Join(s.api.requests, "\n") + "\n"
}

func (s *eventStory) sent(least, most int) error {
	if n := strings.Count(s.taken(), " "); n < least || n > most {
		return fmt.Errorf("got %d requests, want %d to %d", n, least, most)
	}
	return nil
}

func (s *eventStory) failures() int {
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	return s.api.failures
}
