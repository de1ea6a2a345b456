package app

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	componentbaseconfig "k8s.io/component-base/config/v1alpha1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/config"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// conflict returns the event of a conflict that Service i lost. There are ten
// namespaces.
func conflict(i int) cluster.Event {
	return cluster.Event{
		Kind: "Service", Namespace: fmt.Sprint("team-", i%10), Name: fmt.Sprint("svc-", i), UID: fmt.Sprint(i),
		Reason: cluster.ReasonAddressConflict, Note: "lost",
	}
}

// Events have their own client, so that a burst of them does not delay lists.
func TestEventsDoNotDelayLists(t *testing.T) {
	var posted atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			posted.Add(1)
			w.WriteHeader(http.StatusCreated)
			io.Copy(w, r.Body)
			return
		}
		io.WriteString(w, `{"kind": "ServiceList", "apiVersion": "v1", "items": []}`)
	}))
	defer api.Close()
	const burst = 10
	s := &server{
		options: &config.Options{Master: api.URL},
		config: &v1alpha1.KubeProxyConfiguration{
			ClientConnection: componentbaseconfig.ClientConnectionConfiguration{
				QPS: 5, Burst: burst, ContentType: "application/json",
			},
		},
	}
	var pc proxier.Config
	if err := s.connect(&pc); err != nil {
		t.Fatal(err)
	}
	go s.events.run(t.Context())
	for i := range 100 {
		pc.Events.Record(conflict(i))
	}
	for posted.Load() < burst { // later events wait for the rate limiter
		time.Sleep(time.Millisecond)
	}
	start := time.Now()
	if err := s.client.Core.Get().Resource("services").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	if elapsed := time.Since(start); elapsed > time.Second {
		t.Errorf("got a list after %v while events were sent, want at most 1s", elapsed)
	}
}

// newTestRecorder returns an eventRecorder, and a function that returns the
// number of events sent since its last call.
func newTestRecorder() (r *eventRecorder, sent func() int) {
	r = newEventRecorder(nil)
	return r, func() (n int) {
		for ; len(r.queue) > 0; n++ {
			<-r.queue
		}
		return n
	}
}

func TestEventsOfManyObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, sent := newTestRecorder()
		for i := range 500 {
			r.Record(conflict(i))
		}
		if n := sent(); n < 45 || n > 50 {
			t.Errorf("got %d events of 500 conflicts at once, want 45 to 50", n)
		}
		refused := conflict(0)
		refused.Reason = cluster.ReasonRefused
		r.Record(refused)
		if n := sent(); n != 1 {
			t.Errorf("got %d events of another reason, want 1", n)
		}
		for i := range 600 { // ten each second
			time.Sleep(100 * time.Millisecond)
			r.Record(conflict(1000 + i))
		}
		if n := sent(); n < 5 || n > 6 {
			t.Errorf("got %d events of 600 conflicts within a minute, want 5 or 6", n)
		}
	})
}

func TestEventsOfOneObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, sent := newTestRecorder()
		for range 100 {
			r.Record(conflict(1))
		}
		if n := sent(); n != 10 {
			t.Errorf("got %d events of one object, want 10", n)
		}
		r.Record(conflict(2))
		if n := sent(); n != 1 {
			t.Errorf("got %d events of another object, want 1", n)
		}
		time.Sleep(5 * time.Minute)
		for range 10 {
			r.Record(conflict(1))
		}
		if n := sent(); n != 1 {
			t.Errorf("got %d events of the first object after 5 minutes, want 1", n)
		}
	})
}

// The events of some namespaces leave some to others.
func TestEventsOfOneNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, sent := newTestRecorder()
		burst := func(namespace, want int) {
			t.Helper()
			for i := range 500 {
				r.Record(conflict(10*i + namespace))
			}
			if n := sent(); n != want {
				t.Errorf("got %d events of 500 conflicts in a namespace, want %d", n, want)
			}
		}
		burst(0, 25)
		burst(1, 13)
		burst(2, 6)
		for i := range 3600 {
			time.Sleep(time.Second)
			r.Record(conflict(10 * (500 + i)))
		}
		if n := sent(); n < 330 || n > 370 {
			t.Errorf("got %d events of one namespace in an hour, want 360", n)
		}
		burst(1, 13)
	})
}

func TestReferences(t *testing.T) {
	for kind, version := range map[string]string{"Service": "v1", "EndpointSlice": "discovery.k8s.io/v1"} {
		got := referenceOf(cluster.Event{Kind: kind, Namespace: "default", Name: "web", UID: "u"})
		want := corev1.ObjectReference{APIVersion: version, Kind: kind, Namespace: "default", Name: "web", UID: "u"}
		if *got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

func TestTruncate(t *testing.T) {
	for _, tt := range []struct {
		in   string
		n    int
		want string
	}{
		{"short", 10, "short"}, {"exact", 5, "exact"}, {"longer", 4, "long"}, {"aé", 2, "a"},
		{strings.Repeat("x", 2000), maxNote, strings.Repeat("x", 1024)},
	} {
		if got := truncate(tt.in, tt.n); got != tt.want {
			t.Errorf("truncate(%q, %d) = %q, want %q", tt.in, tt.n, got, tt.want)
		}
	}
}
