package app

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/proxier/informer"
	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
	"github.com/nftproxy/nftproxy/test/must"
)

// requestLog is an API server without objects. It runs without a network.
type requestLog struct {
	mu       sync.Mutex
	requests sets.Set[string] // "group/resource verb"
}

func (l *requestLog) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(10 * time.Millisecond): // the network
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	request := permissionOf(r)
	l.mu.Lock()
	l.requests.Insert(request)
	l.mu.Unlock()
	status, body := http.StatusOK, []byte(`{"kind": "Status", "apiVersion": "v1", "status": "Success"}`)
	switch kind := request[strings.Index(request, "/")+1:]; {
	case strings.HasSuffix(kind, " watch"):
		status = http.StatusGone
	case strings.HasSuffix(kind, " list"):
		kinds := map[string]string{
			"services": "v1 ServiceList", "nodes": "v1 NodeList",
			"endpointslices": "discovery.k8s.io/v1 EndpointSliceList",
			"servicecidrs":   "networking.k8s.io/v1 ServiceCIDRList",
		}
		version, list, _ := strings.Cut(kinds[strings.TrimSuffix(kind, " list")], " ")
		body = []byte(`{"kind": "` + list + `", "apiVersion": "` + version + `", "items": []}`)
	}
	return &http.Response{
		StatusCode: status, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)),
	}, nil
}

var apiPath = regexp.MustCompile(`^/(?:api|apis/([^/]+))/[^/]+(?:/namespaces/[^/]+)?/([^/]+)(/.+)?$`)

// permissionOf returns the permission that a request needs, as "group/resource
// verb".
func permissionOf(r *http.Request) string {
	path := apiPath.FindStringSubmatch(r.URL.Path)
	verb := map[string]string{
		http.MethodGet: "list", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch",
		http.MethodDelete: "delete",
	}[r.Method]
	switch {
	case r.URL.Query().Has("watch"):
		verb = "watch"
	case verb == "list" && path[3] != "":
		verb = "get"
	}
	return path[1] + "/" + path[2] + " " + verb
}

// withoutObjects is a Handler of an API server without objects.
type withoutObjects struct{ informer.Handler }

// The manifests grant the permissions that the process needs and no others.
func TestRole(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/kustomize/base/rbac.yaml")
	must.NoError(t, err)
	var role rbacv1.ClusterRole
	must.NoError(t, yaml.Unmarshal(bytes.Split(text, []byte("\n---\n"))[0], &role))
	granted := sets.New[string]()
	for _, rule := range role.Rules {
		for _, verb := range rule.Verbs {
			granted.Insert(rule.APIGroups[0] + "/" + rule.Resources[0] + " " + verb)
		}
		if len(rule.APIGroups) != 1 || len(rule.Resources) != 1 {
			t.Errorf("got rule %v, want one group and resource", rule)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		api := &requestLog{requests: sets.New[string]()}
		client, err := apiclient.New(&rest.Config{
			Transport: api, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
		})
		must.NoError(t, err)
		source, err := informer.New(informer.Config{
			Client: client, NodeName: "n1", Handler: withoutObjects{},
		})
		must.NoError(t, err)
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		events := newEventRecorder(client.Events)
		go events.run(ctx)
		for range 2 {
			events.recordStart("n1")
			synctest.Wait()
		}
		if err := source.Run(ctx); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second) // until the last requests have ended
		synctest.Wait()
		if !granted.Equal(api.requests) {
			t.Errorf("got permissions %q, want %q", slices.Sorted(maps.Keys(granted)),
				slices.Sorted(maps.Keys(api.requests)))
		}
	})
}
