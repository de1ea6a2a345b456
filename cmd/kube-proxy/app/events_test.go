package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.events.run(ctx) })
	defer running.Wait()
	defer cancel()
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
