package app

import (
	"regexp"
	"runtime"
	"strings"
	"testing"
)

const zpageWarning = "Warning: This endpoint is not meant to be machine parseable, " +
	"has no formatting compatibility guarantees and is for debugging purposes only.\n"

func TestFlagz(t *testing.T) {
	const objectOf = ";v=v1beta1;g=config.k8s.io;as=Flagz"
	const answerOf = ";g=config.k8s.io;v=v1beta1;as=Flagz"
	text := "\nkube-proxy flagz\n" + zpageWarning + "config=/var/lib/config.conf\nempty=\nv=2\n"
	jsonBody := `{
  "kind": "Flagz",
  "apiVersion": "config.k8s.io/v1beta1",
  "metadata": {
    "name": "kube-proxy"
  },
  "flags": {
    "config": "/var/lib/config.conf",
    "empty": "",
    "v": "2"
  }
}`
	yamlBody := `apiVersion: config.k8s.io/v1beta1
flags:
  config: /var/lib/config.conf
  empty: ""
  v: "2"
kind: Flagz
metadata:
  name: kube-proxy
`
	refusal := `{
  "kind": "Status",
  "apiVersion": "v1",
  "metadata": {},
  "status": "Failure",
  "message": "only the following media types are accepted: application/json, application/yaml, text/plain",
  "reason": "NotAcceptable",
  "code": 406
}`
	pages := flagz(func() map[string]string {
		return map[string]string{"v": "2", "config": "/var/lib/config.conf", "empty": ""}
	})
	for _, tc := range []struct {
		accept, contentType, body string
	}{
		{"", "text/plain; charset=utf-8", text},
		{"*/*", "text/plain; charset=utf-8", text},
		{"text/*", "text/plain; charset=utf-8", text},
		{"text/html, */*;q=0.8", "text/plain; charset=utf-8", text},
		{"application/json" + objectOf, "application/json" + answerOf, jsonBody},
		{"application/*" + objectOf, "application/json" + answerOf, jsonBody},
		{"application/yaml" + objectOf, "application/yaml" + answerOf, yamlBody},
		{"application/yaml" + objectOf + ";q=0.5, application/json" + objectOf,
			"application/json" + answerOf, jsonBody},
		{"application/yaml" + objectOf + ", application/json" + objectOf, "application/yaml" + answerOf, yamlBody},
		{"application/json, text/plain", "text/plain; charset=utf-8", text},
		{"application/json", "application/json", refusal},
		{"image/png", "application/json", refusal},
		{"application/json;v=v9;g=config.k8s.io;as=Flagz", "application/json", refusal},
		{"application/json;v=v1beta1;g=config.k8s.io;as=Statusz", "application/json", refusal},
		{"application/json;v=v1beta1;g=other;as=Flagz", "application/json", refusal},
		{"application/vnd.kubernetes.protobuf" + objectOf, "application/json", refusal},
		{"text/plain;q=high", "text/plain; charset=utf-8", text},
		{";;;", "application/json", refusal},
	} {
		want := 200
		if tc.body == refusal {
			want = 406
		}
		r := ask(pages, "GET", "/flagz", tc.accept, "")
		if r.Code != want || r.Header().Get("Content-Type") != tc.contentType ||
			r.Body.String() != tc.body || r.Header().Get("Warning") != "" {
			t.Errorf("Accept %q: got status %d, %v, body\n%s\nwant %d, %s\n%s",
				tc.accept, r.Code, r.Header(), r.Body, want, tc.contentType, tc.body)
		}
	}
	r := ask(pages, "GET", "/flagz", "application/json;v=v1alpha1;g=config.k8s.io;as=Flagz", "")
	if r.Code != 200 || r.Body.String() != strings.Replace(jsonBody, "v1beta1", "v1alpha1", 1) ||
		r.Header().Get("Warning") !=
			`299 - "This version of the flagz endpoint is deprecated. Please use a newer version."` {
		t.Errorf("v1alpha1: got status %d, %v, %s", r.Code, r.Header(), r.Body)
	}
}

func TestStatusz(t *testing.T) {
	const pagesWanted = "/configz /flagz /healthz /metrics /proxyMode"
	pages := statusPages(t)
	text := regexp.MustCompile(`^
kube-proxy statusz
` + zpageWarning + `
Started: .* 20\d\d
Up: \d+ hr \d\d min \d\d sec
Go version: ` + runtime.Version() + `
Binary version: ` + regexp.QuoteMeta(Version) + `
Emulation version: 1.37
Paths: ` + pagesWanted + `
$`)
	if r := ask(pages, "GET", "/statusz", "", ""); r.Code != 200 || !text.MatchString(r.Body.String()) {
		t.Errorf("got status %d, %s, want %s", r.Code, r.Body, text)
	}
	object := regexp.MustCompile(`^{
  "kind": "Statusz",
  "apiVersion": "config.k8s.io/v1beta1",
  "metadata": {
    "name": "kube-proxy"
  },
  "startTime": "20..-..-..T..:..:..Z",
  "uptimeSeconds": \d+,
  "goVersion": "` + runtime.Version() + `",
  "binaryVersion": "` + regexp.QuoteMeta(Version) + `",
  "emulationVersion": "1.37",
  "paths": \["` + strings.ReplaceAll(pagesWanted, " ", `","`) + `"\]
}$`)
	r := ask(pages, "GET", "/statusz", "application/json;v=v1beta1;g=config.k8s.io;as=Statusz", "")
	body := strings.NewReplacer("[\n    ", "[", ",\n    ", ",", "\n  ]", "]").Replace(r.Body.String())
	if r.Code != 200 || r.Header().Get("Content-Type") != "application/json;g=config.k8s.io;v=v1beta1;as=Statusz" ||
		!object.MatchString(body) {
		t.Errorf("got status %d, %v, %s; want %s", r.Code, r.Header(), body, object)
	}
}
