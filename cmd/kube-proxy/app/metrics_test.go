package app

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/proxier/informer"
	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
	"github.com/nftproxy/nftproxy/proxier/manifest"
	"github.com/nftproxy/nftproxy/test/must"
)

// The problems of manifests are a metric.
func TestManifestProblems(t *testing.T) {
	problems := newManifestProblems(func() *manifest.Status { return &manifest.Status{ProblemCount: 3} })
	if got := testutil.ToFloat64(problems); got != 3 {
		t.Errorf("got %v, want 3", got)
	}
}

// answering is a round tripper that answers every request.
type answering struct{}

func (answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}, nil
}

// The durations of lists are a metric, as in kube-proxy.
func TestListDurations(t *testing.T) {
	client, err := apiclient.New(&rest.Config{
		Transport:     &requestLog{requests: sets.New[string]()},
		ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	})
	must.NoError(t, err)
	source, err := informer.New(informer.Config{Client: client, NodeName: "n1", Handler: withoutObjects{}})
	must.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	must.NoError(t, source.Run(ctx))
	verbs := make(map[string]bool)
	for _, m := range scrape(t, statusPages(t), "/metrics")["rest_client_request_duration_seconds"].GetMetric() {
		for _, l := range m.GetLabel() {
			verbs[l.GetValue()] = true
		}
	}
	if !verbs["GET"] {
		t.Errorf("got durations of %v, want of GET", verbs)
	}
}

// The metrics have the times of the last answer and of each watch, and none
// before the first answer.
func TestContactMetrics(t *testing.T) {
	var contact apiclient.Contact
	pages := statusPages(t, contactMetrics{&contact})
	const answer = "nftproxy_api_last_answer_timestamp_seconds"
	const watch = "nftproxy_watch_last_received_timestamp_seconds"
	if all := scrape(t, pages, "/metrics"); all[answer] != nil || all[watch] != nil {
		t.Errorf("before the first answer: got %v and %v, want none", all[answer], all[watch])
	}
	request, err := http.NewRequest(http.MethodGet, "https://api/api/v1/services?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	begin := float64(time.Now().Unix())
	response, err := contact.Wrap(answering{}).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	all := scrape(t, pages, "/metrics")
	for _, name := range []string{answer, watch} {
		m := all[name].GetMetric()
		if len(m) != 1 || m[0].GetGauge().GetValue() < begin || m[0].GetGauge().GetValue() > begin+60 {
			t.Fatalf("%s: got %v, want one time after %f", name, m, begin)
		}
	}
	if got := all[watch].GetMetric()[0].GetLabel()[0].GetValue(); got != "services" {
		t.Errorf("got a watch of %s, want services", got)
	}
}
