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

// The wanted bodies have words for times: NEVER, OLD, RECENT, and NOW for the
// current time.
var (
	oldTime    = time.Date(2020, 1, 2, 3, 4, 5, 6, time.UTC)
	recentTime = time.Date(2020, 1, 2, 3, 4, 7, 0, time.UTC)
)

func TestProxyHealth(t *testing.T) {
	both := func(healthy4, healthy6 bool) []FamilyHealth {
		return []FamilyHealth{{"IPv4", recentTime, healthy4}, {"IPv6", oldTime, healthy6}}
	}
	bothStatus := func(healthy4, healthy6 bool) string {
		return fmt.Sprintf(`"status":{"IPv4":{"lastUpdated":RECENT,"healthy":%v},`+
			`"IPv6":{"lastUpdated":OLD,"healthy":%v}}}`, healthy4, healthy6)
	}
	const now, recent, never = `{"lastUpdated":NOW,"currentTime":NOW,`,
		`{"lastUpdated":RECENT,"currentTime":NOW,`, `{"lastUpdated":NEVER,"currentTime":NOW,`
	for name, tc := range map[string]struct {
		health      []FamilyHealth
		eligible    bool
		healthzCode int
		healthz     string
		livezCode   int
		livez       string
	}{
		"healthy": {both(true, true), true,
			200, now + `"nodeEligible":true,"healthy":true,` + bothStatus(true, true),
			200, now + `"healthy":true,` + bothStatus(true, true)},
		"one family is late": {both(true, false), true,
			503, recent + `"nodeEligible":true,"healthy":false,` + bothStatus(true, false),
			503, recent + `"healthy":false,` + bothStatus(true, false)},
		"the other family is late": {both(false, true), true,
			503, recent + `"nodeEligible":true,"healthy":false,` + bothStatus(false, true),
			503, recent + `"healthy":false,` + bothStatus(false, true)},
		"the node is being deleted": {both(true, true), false,
			503, recent + `"nodeEligible":false,"healthy":true,` + bothStatus(true, true),
			200, now + `"healthy":true,` + bothStatus(true, true)},
		"before the first sync": {[]FamilyHealth{{"IPv4", time.Time{}, true}}, true,
			503, never + `"nodeEligible":true,"healthy":false,"status":{"IPv4":{"lastUpdated":NEVER,"healthy":false}}}`,
			200, now + `"healthy":true,"status":{"IPv4":{"lastUpdated":NEVER,"healthy":true}}}`},
		"before the first sync of one family": {
			[]FamilyHealth{{"IPv4", recentTime, true}, {"IPv6", time.Time{}, true}}, true,
			503, recent + `"nodeEligible":true,"healthy":false,` +
				`"status":{"IPv4":{"lastUpdated":RECENT,"healthy":true},"IPv6":{"lastUpdated":NEVER,"healthy":false}}}`,
			200, now + `"healthy":true,"status":{"IPv4":{"lastUpdated":RECENT,"healthy":true},` +
				`"IPv6":{"lastUpdated":NEVER,"healthy":true}}}`},
		"the first sync is late": {[]FamilyHealth{{"IPv4", time.Time{}, false}}, true,
			503, never + `"nodeEligible":true,"healthy":false,"status":{"IPv4":{"lastUpdated":NEVER,"healthy":false}}}`,
			503, never + `"healthy":false,"status":{"IPv4":{"lastUpdated":NEVER,"healthy":false}}}`},
		"no family": {nil, true,
			503, never + `"nodeEligible":true,"healthy":false}`,
			503, never + `"healthy":false}`},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			s, err := NewProxyServer(ProxyConfig{
				Health:       func() []FamilyHealth { return tc.health },
				NodeEligible: func() bool { return tc.eligible },
				OnHealthz:    func(code int) { got = append(got, fmt.Sprint("healthz ", code)) },
				OnLivez:      func(code int) { got = append(got, fmt.Sprint("livez ", code)) },
			})
			if err != nil {
				t.Fatal(err)
			}
			wantProxyResponse(t, s, "/healthz", tc.healthzCode, tc.healthz)
			wantProxyResponse(t, s, "/livez", tc.livezCode, tc.livez)
			want := []string{fmt.Sprint("healthz ", tc.healthzCode), fmt.Sprint("livez ", tc.livezCode)}
			if !slices.Equal(got, want) {
				t.Errorf("got counts %q, want %q", got, want)
			}
		})
	}
}

func wantProxyResponse(t *testing.T, s *ProxyServer, path string, code int, want string) {
	t.Helper()
	before := time.Now()
	r := httptest.NewRecorder()
	s.HTTPServer.config.Handler.ServeHTTP(r, httptest.NewRequest("GET", path, nil))
	body := r.Body.String()
	var times struct{ CurrentTime time.Time }
	if err := json.Unmarshal([]byte(body), &times); err != nil {
		t.Fatalf("%s: got %v for body %s, want JSON", path, err, body)
	}
	if times.CurrentTime.Before(before) || times.CurrentTime.After(time.Now()) {
		t.Errorf("%s: got body %s, want the current time", path, body)
	}
	for word, at := range map[string]time.Time{
		"NEVER": {}, "OLD": oldTime, "RECENT": recentTime, "NOW": times.CurrentTime,
	} {
		text, _ := json.Marshal(at)
		body = strings.ReplaceAll(body, string(text), word)
	}
	if r.Code != code || body != want {
		t.Errorf("%s: got status %d, body\n%s\nwant %d\n%s", path, r.Code, body, code, want)
	}
	wantHeaders(t, r.Header(), map[string]string{
		"Content-Type": "application/json", "X-Content-Type-Options": "nosniff",
	})
}

func wantHeaders(t *testing.T, headers http.Header, wanted map[string]string) {
	t.Helper()
	for header, want := range wanted {
		if got := headers.Values(header); len(got) != 1 || got[0] != want {
			t.Errorf("header %s: got %q, want %q", header, got, want)
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
