package apiserver

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/test/lab/frontend"
)

// TestContract compares the subject's flags, metrics and HTTP answers with
// kube-proxy's.
func TestContract(t *testing.T) {
	t.Parallel()
	name := subjectName()
	if *record {
		name = upstream
	}
	w := newWorld(t)
	web := w.createService("web", "a1 b1")
	p := w.proxy(name, "--profiling")
	p.startSynced()
	web.servedBy("a1 b1")
	// Some metrics appear with their first observation.
	slice := web.newSlice(0, []string{"a2", "b1"})
	slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().Format(time.RFC3339Nano)}
	w.writeSlice(slice)
	ipv6 := func(f frontend.Frontend) bool { return f.To.Addr().Is6() }
	w.reaches(w.pods["a1"].Namespace, slices.DeleteFunc(web.clusterIPs(), ipv6), "a2 b1")
	_, err := p.get(healthAddress, "/livez")
	w.must(err)

	t.Run("metrics", func(t *testing.T) {
		metrics := describeMetrics(p.text(t, metricsAddress, "/metrics"))
		compare(t, "metrics.txt", metrics, unlessLinked)
		for _, line := range sometimes() {
			if name == product && !slices.Contains(metrics, line) {
				t.Errorf("missing: %s", line)
			}
		}
	})
	t.Run("slis", func(t *testing.T) {
		compare(t, "slis.txt", describeMetrics(p.text(t, metricsAddress, "/metrics/slis")), all)
	})
	t.Run("answers", func(t *testing.T) { compareAnswers(t, p, questions()) })
	t.Run("flags", func(t *testing.T) { compareFlags(t, describeFlags(w.help(name))) })
	t.Run("all flags", func(t *testing.T) {
		if name == upstream {
			compare(t, "all-flags.txt", describeFlagLines(w.flagLines(name)), all)
			return
		}
		compare(t, "all-flags.txt", describeFlagPage(p.text(t, metricsAddress, "/flagz")), p.unlessSet)
	})
	t.Run("defaults", func(t *testing.T) { compareText(t, "defaults.yaml", w.defaults(name)) })

	// The cluster autoscaler taints a node before it removes it.
	node, err := w.Admin().CoreV1().Nodes().Get(w.ctx(), w.Node1.Name, metav1.GetOptions{})
	w.must(err)
	node.Spec.Taints = append(node.Spec.Taints, toBeDeleted())
	_, err = w.Admin().CoreV1().Nodes().Update(w.ctx(), node, metav1.UpdateOptions{})
	w.must(err)
	p.eventually("/healthz of a node to be removed", func() error {
		answer, err := p.get(healthAddress, "/healthz")
		if err == nil && answer.StatusCode == 200 {
			err = fmt.Errorf("%s", answer.Status)
		}
		return err
	})
	t.Run("leaving", func(t *testing.T) {
		compareAnswers(t, p, []question{
			{"leaving-healthz", healthAddress, "/healthz", false},
			{"leaving-livez", healthAddress, "/livez", false},
		})
	})
}

// question is a request to a server of the proxy.
type question struct {
	name, address, path string
	// page is set if the body varies between runs: it is not compared.
	page bool
}

// questions returns the questions for a healthy proxy.
func questions() []question {
	return []question{
		{"healthz", healthAddress, "/healthz", false},
		{"livez", healthAddress, "/livez", false},
		{"health-other", healthAddress, "/other", false},
		{"metrics-healthz", metricsAddress, "/healthz", false},
		{"metrics-healthz-verbose", metricsAddress, "/healthz?verbose", false},
		{"metrics-livez", metricsAddress, "/livez", false},
		{"metrics-other", metricsAddress, "/other", false},
		{"proxyMode", metricsAddress, "/proxyMode", false},
		{"configz", metricsAddress, "/configz", false},
		{"flags-v", metricsAddress, "/debug/flags/v", false},
		{"pprof-cmdline", metricsAddress, "/debug/pprof/cmdline", false},
		{"flagz", metricsAddress, "/flagz", true},
		{"statusz", metricsAddress, "/statusz", true},
		{"pprof", metricsAddress, "/debug/pprof/", true},
	}
}

func compareAnswers(t *testing.T, p *proxy, questions []question) {
	t.Helper()
	for _, q := range questions {
		t.Run(q.name, func(t *testing.T) {
			answer, err := p.get(q.address, q.path)
			if err != nil {
				t.Fatal(err)
			}
			if q.page {
				answer.body = ""
			}
			compareText(t, filepath.Join("answers", q.name+".txt"), answer.describe())
		})
	}
}

// describe returns the status, headers and body, without parts that vary
// between runs.
func (a answer) describe() string {
	var text strings.Builder
	fmt.Fprintln(&text, a.Status)
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		if name != "Date" && name != "Content-Length" {
			fmt.Fprintf(&text, "%s: %s\n", name, strings.Join(a.Header[name], ", "))
		}
	}
	fmt.Fprintf(&text, "\n%s\n", withoutVariables(a.body))
	return text.String()
}

// withoutVariables replaces times and the names of files and programs, which
// vary between runs.
func withoutVariables(text string) string {
	const date, clock, zone = `\d{4}-\d\d-\d\d`, `\d\d:\d\d:\d\d(\.\d+)?`, `( ?[+-]\d{4} UTC|Z)?( m=[+-][\d.]+)?`
	text = regexp.MustCompile(date+"[T ]"+clock+zone).ReplaceAllString(text, "TIME")
	text = regexp.MustCompile(`/[^"\s\x00]*/kubeconfig`).ReplaceAllString(text, "KUBECONFIG")
	return regexp.MustCompile(`/[^"\s\x00]*/(kube-proxy|nftproxy)\b`).ReplaceAllString(text, "PROGRAM")
}

// withoutPeriod replaces the product's default of minSyncPeriod, which
// differs on purpose.
func withoutPeriod(text string) string {
	if subjectName() == upstream {
		return text
	}
	text = strings.Replace(text, `"syncPeriod":"30s","minSyncPeriod":"1ms"`, `"syncPeriod":"30s","minSyncPeriod":"1s"`,
		1)
	return regexp.MustCompile(`(?m)(^nftables:(\n  .*)*\n  minSyncPeriod:) 0s$`).ReplaceAllString(text, "$1 1s")
}

// text returns the body of a server's answer.
func (p *proxy) text(t testing.TB, address, path string) string {
	t.Helper()
	answer, err := p.get(address, path)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != 200 {
		t.Fatalf("%s: %s", path, answer.Status)
	}
	return answer.body
}
