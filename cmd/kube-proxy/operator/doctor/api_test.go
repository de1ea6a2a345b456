package doctor_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/doctor"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
)

func TestAPI(t *testing.T) {
	now := time.Now()
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	answers := func(change func(*apiclient.ContactState)) *apiclient.ContactState {
		api := &apiclient.ContactState{
			Answered: ago(5), Compared: ago(5), AheadSeconds: 1,
			Heard: map[string]time.Time{"services": ago(20), "endpointslices": ago(50)},
		}
		change(api)
		return api
	}
	tests := []struct {
		name string
		api  *apiclient.ContactState
		want []expectation
	}{
		{"manifests", nil, []expectation{
			{"api-server", doctor.Skipped, "manifests"}, {"watch", doctor.Skipped, "manifests"},
		}},
		{"at the start", &apiclient.ContactState{}, []expectation{
			{"api-server", doctor.Skipped, "not sent"}, {"watch", doctor.Skipped, "no watch"},
		}},
		{"healthy", answers(func(*apiclient.ContactState) {}), []expectation{
			{"api-server", doctor.OK, ""}, {"watch", doctor.OK, "50s"}, {"clock", doctor.OK, "1s"},
		}},
		{"never answered", &apiclient.ContactState{Failed: ago(1), Error: "refused"}, []expectation{
			{"api-server", doctor.Fail, "never answered: refused"},
		}},
		{"unreachable", answers(func(api *apiclient.ContactState) {
			api.Failed, api.Error = ago(1), "refused"
		}), []expectation{
			{"api-server", doctor.Fail, "not answered for 5s: refused"},
		}},
		{"reachable again", answers(func(api *apiclient.ContactState) { api.Failed = ago(10) }), []expectation{
			{"api-server", doctor.OK, ""},
		}},
		{"silent watch", answers(func(api *apiclient.ContactState) { api.Heard["services"] = ago(600) }), []expectation{
			{"watch", doctor.Warn, "services has been silent for 10m0s"},
		}},
		{"slow clock", answers(func(api *apiclient.ContactState) { api.AheadSeconds = 90 }), []expectation{
			{"clock", doctor.Warn, "1m30s behind"},
		}},
		{"fast clock", answers(func(api *apiclient.ContactState) { api.AheadSeconds = -90 }), []expectation{
			{"clock", doctor.Warn, "1m30s ahead of"},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for _, want := range test.want {
				want.check(t, doctor.Config{
					Proxy: &answer.ProxyStatus{Status: proxier.Status{Time: now}, API: test.api},
				})
			}
		})
	}
	expectation{"api-server", doctor.Skipped, "nothing listens"}.check(t, doctor.Config{
		ProxyError: errors.New("nothing listens"),
	})
}
