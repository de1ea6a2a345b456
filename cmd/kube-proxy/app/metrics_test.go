package app

import (
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
	"github.com/nftproxy/nftproxy/proxier/manifest"
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

// The metrics have the times of the last answer and of each watch, and none
// before the first answer.
func TestContactMetrics(t *testing.T) {
	var contact apiclient.Contact
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(contactMetrics{&contact})
	times := func() map[string]float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		values := make(map[string]float64)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := f.GetName()
				for _, l := range m.GetLabel() {
					name += " " + l.GetValue()
				}
				values[name] = m.GetGauge().GetValue()
			}
		}
		return values
	}
	if got := times(); len(got) != 0 {
		t.Errorf("before the first answer: got %v, want none", got)
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
	got := times()
	for _, name := range []string{
		"nftproxy_api_last_answer_timestamp_seconds", "nftproxy_watch_last_received_timestamp_seconds services",
	} {
		if at := got[name]; len(got) != 2 || at < begin || at > begin+60 {
			t.Errorf("got %v, want 2 times after %f", got, begin)
		}
	}
}
