package healthcheck

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestProxyHealth(t *testing.T) {
	old, recent := time.Date(2020, 1, 2, 3, 4, 5, 6, time.UTC), time.Date(2020, 1, 2, 3, 4, 7, 0, time.UTC)
	family := func(name string, at time.Time, healthy bool) FamilyHealth { return FamilyHealth{name, at, healthy} }
	both := func(h4, h6 bool) []FamilyHealth {
		return []FamilyHealth{family("IPv4", recent, h4), family("IPv6", old, h6)}
	}
	status := func(h4, h6 bool) string {
		return fmt.Sprintf(`"status":{"IPv4":{"lastUpdated":"2020-01-02T03:04:07Z","healthy":%v},`+
			`"IPv6":{"lastUpdated":"2020-01-02T03:04:05.000000006Z","healthy":%v}}}`, h4, h6)
	}
	const updated, never = `{"lastUpdated":"2020-01-02T03:04:07Z","currentTime":"NOW",`, `{"lastUpdated":"0001-01-01T00:00:00Z","currentTime":"NOW",`
	const now = `{"lastUpdated":"NOW","currentTime":"NOW",`
	for _, tc := range []struct {
		name        string
		health      []FamilyHealth
		eligible    bool
		healthzCode int
		healthz     string
		livezCode   int
		livez       string
	}{
		{"healthy", both(true, true), true,
			200, now + `"nodeEligible":true,"healthy":true,` + status(true, true),
			200, now + `"healthy":true,` + status(true, true)},
		{"one family is late", both(true, false), true,
			503, updated + `"nodeEligible":true,"healthy":false,` + status(true, false),
			503, updated + `"healthy":false,` + status(true, false)},
		{"the other family is late", both(false, true), true,
			503, updated + `"nodeEligible":true,"healthy":false,` + status(false, true),
			503, updated + `"healthy":false,` + status(false, true)},
		{"the node is being deleted", both(true, true), false,
			503, updated + `"nodeEligible":false,"healthy":true,` + status(true, true),
			200, now + `"healthy":true,` + status(true, true)},
		{"before the first sync", []FamilyHealth{family("IPv4", time.Time{}, true)}, true,
			503, never + `"nodeEligible":true,"healthy":false,"status":{"IPv4":{"lastUpdated":"0001-01-01T00:00:00Z","healthy":false}}}`,
			200, now + `"healthy":true,"status":{"IPv4":{"lastUpdated":"0001-01-01T00:00:00Z","healthy":true}}}`},
		{"before the first sync of one family", []FamilyHealth{family("IPv4", recent, true), family("IPv6", time.Time{}, true)}, true,
			503, updated + `"nodeEligible":true,"healthy":false,"status":{"IPv4":{"lastUpdated":"2020-01-02T03:04:07Z","healthy":true},` +
				`"IPv6":{"lastUpdated":"0001-01-01T00:00:00Z","healthy":false}}}`,
			200, now + `"healthy":true,"status":{"IPv4":{"lastUpdated":"2020-01-02T03:04:07Z","healthy":true},` +
				`"IPv6":{"lastUpdated":"0001-01-01T00:00:00Z","healthy":true}}}`},
		{"the first sync is late", []FamilyHealth{family("IPv4", time.Time{}, false)}, true,
			503, never + `"nodeEligible":true,"healthy":false,"status":{"IPv4":{"lastUpdated":"0001-01-01T00:00:00Z","healthy":false}}}`,
			503, never + `"healthy":false,"status":{"IPv4":{"lastUpdated":"0001-01-01T00:00:00Z","healthy":false}}}`},
		{"no family", nil, true,
			503, never + `"nodeEligible":true,"healthy":false}`,
			503, never + `"healthy":false}`},
	} {
		var counted []string
		s, err := NewProxyServer(ProxyConfig{
			Health:       func() []FamilyHealth { return tc.health },
			NodeEligible: func() bool { return tc.eligible },
			OnHealthz:    func(code int) { counted = append(counted, fmt.Sprint("healthz ", code)) },
			OnLivez:      func(code int) { counted = append(counted, fmt.Sprint("livez ", code)) },
		})
		if err != nil {
			t.Fatal(err)
		}
		wantProxyResponse(t, s, tc.name, "/healthz", tc.healthzCode, tc.healthz)
		wantProxyResponse(t, s, tc.name, "/livez", tc.livezCode, tc.livez)
		if want := []string{fmt.Sprint("healthz ", tc.healthzCode), fmt.Sprint("livez ", tc.livezCode)}; !slices.Equal(counted, want) {
			t.Errorf("%s: got counts %q, want %q", tc.name, counted, want)
		}
	}
}

// wantProxyResponse compares a response. NOW stands for the current time.
func wantProxyResponse(t *testing.T, s *ProxyServer, name, path string, code int, want string) {
	t.Helper()
	before := time.Now()
	r := httptest.NewRecorder()
	s.HTTPServer.config.Handler.ServeHTTP(r, httptest.NewRequest("GET", path, nil))
	body := r.Body.String()
	var times struct{ CurrentTime time.Time }
	if err := json.Unmarshal([]byte(body), &times); err != nil {
		t.Fatalf("%s: %s: got %v for body %s, want JSON", name, path, err, body)
	}
	if times.CurrentTime.Before(before) || times.CurrentTime.After(time.Now()) {
		t.Errorf("%s: %s: got body %s, want the current time", name, path, body)
	}
	now, _ := json.Marshal(times.CurrentTime)
	if body = strings.ReplaceAll(body, string(now), `"NOW"`); r.Code != code || body != want {
		t.Errorf("%s: %s: got status %d, body\n%s\nwant %d\n%s", name, path, r.Code, body, code, want)
	}
	for header, want := range map[string]string{"Content-Type": "application/json", "X-Content-Type-Options": "nosniff"} {
		if got := r.Header().Values(header); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %s: header %s: got %q, want %q", name, path, header, got, want)
		}
	}
}

func TestProxyPaths(t *testing.T) {
	ns := newNamespace(t)
	s, err := NewProxyServer(ProxyConfig{
		Addr:         "0.0.0.0:10256",
		Health:       func() []FamilyHealth { return []FamilyHealth{{"IPv4", time.Now(), true}} },
		NodeEligible: func() bool { return true },
	})
	if err != nil {
		t.Fatal(err)
	}
	ns.Do(func() { err = s.Listen(t.Context()) })
	if err != nil {
		t.Fatal(err)
	}
	start(t, s.HTTPServer)
	for _, tc := range []struct {
		method, path string
		code         int
		body         bool
	}{
		{"GET", "/healthz", 200, true},
		{"GET", "/healthz?x=y", 200, true},
		{"POST", "/healthz", 200, true},
		{"HEAD", "/livez", 200, false},
		{"GET", "/", 404, true},
		{"GET", "/healthz/", 404, true},
		{"GET", "/livez/x", 404, true},
		{"GET", "/metrics", 404, true},
	} {
		req, err := http.NewRequest(tc.method, "http://127.0.0.1:10256"+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := ns.client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != tc.code || (len(body) > 0) != tc.body {
			t.Errorf("%s %s: got status %d, body %q, %v, want status %d, a body: %v",
				tc.method, tc.path, resp.StatusCode, body, err, tc.code, tc.body)
		}
	}
}

func TestNewProxyServerWithoutFunctions(t *testing.T) {
	for _, config := range []ProxyConfig{
		{},
		{Health: func() []FamilyHealth { return nil }},
		{NodeEligible: func() bool { return true }},
	} {
		if _, err := NewProxyServer(config); err == nil {
			t.Errorf("%+v: got no error", config)
		}
	}
}
