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
)

// TestContract compares what the subject shows of itself with what kube-proxy shows: flags, metrics, and the answers of its servers.
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
	// More metrics have something to tell.
	slice := web.newSlice(0, []string{"a2", "b1"})
	slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().Format(time.RFC3339Nano)}
	w.must(writeSlice(w, w.Admin(), slice))
	w.reaches(w.pods["a1"].Namespace, web.clusterIPs()[:2], "a2 b1")
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
	t.Run("answers", func(t *testing.T) { compareAnswers(t, p, servers()) })
	t.Run("pages", func(t *testing.T) { compareHeads(t, p, pages()) })
	t.Run("flags", func(t *testing.T) { compareFlags(t, describeFlags(w.help(name))) })
	t.Run("all flags", func(t *testing.T) {
		if name == upstream {
			compare(t, "all-flags.txt", describeFlagLines(w.flagLines(name)), all)
			return
		}
		compare(t, "all-flags.txt", describeFlagPage(p.text(t, metricsAddress, "/flagz")), p.unlessSet)
	})
	t.Run("defaults", func(t *testing.T) { compareText(t, "defaults.yaml", w.defaults(name)) })

	// The cluster autoscaler's taint: the node is about to go.
	node, err := w.Admin().CoreV1().Nodes().Get(w.ctx(), w.Node1.Name, metav1.GetOptions{})
	w.must(err)
	node.Spec.Taints = append(node.Spec.Taints, toBeDeleted())
	_, err = w.Admin().CoreV1().Nodes().Update(w.ctx(), node, metav1.UpdateOptions{})
	w.must(err)
	p.eventually("/healthz of a node that is about to go", func() error {
		answer, err := p.get(healthAddress, "/healthz")
		if err == nil && answer.StatusCode == 200 {
			err = fmt.Errorf("%s", answer.Status)
		}
		return err
	})
	t.Run("leaving", func(t *testing.T) {
		compareAnswers(t, p, []question{{"leaving-healthz", healthAddress, "/healthz"}, {"leaving-livez", healthAddress, "/livez"}})
	})
}

// question is one to a server of the proxy.
type question struct{ name, address, path string }

// servers are the questions to ask of a proxy that is well.
func servers() []question {
	return []question{
		{"healthz", healthAddress, "/healthz"},
		{"livez", healthAddress, "/livez"},
		{"health-other", healthAddress, "/other"},
		{"metrics-healthz", metricsAddress, "/healthz"},
		{"metrics-healthz-verbose", metricsAddress, "/healthz?verbose"},
		{"metrics-livez", metricsAddress, "/livez"},
		{"metrics-other", metricsAddress, "/other"},
		{"proxyMode", metricsAddress, "/proxyMode"},
		{"configz", metricsAddress, "/configz"},
		{"flags-v", metricsAddress, "/debug/flags/v"},
		{"pprof-cmdline", metricsAddress, "/debug/pprof/cmdline"},
	}
}

// pages are questions whose answers are for people: their bodies differ from one run to the next on purpose.
func pages() []question {
	return []question{
		{"flagz", metricsAddress, "/flagz"},
		{"statusz", metricsAddress, "/statusz"},
		{"pprof", metricsAddress, "/debug/pprof/"},
	}
}

// compareHeads compares answers without their bodies.
func compareHeads(t *testing.T, p *proxy, questions []question) {
	t.Helper()
	for _, q := range questions {
		t.Run(q.name, func(t *testing.T) {
			answer, err := p.get(q.address, q.path)
			if err != nil {
				t.Fatal(err)
			}
			answer.body = ""
			compareText(t, filepath.Join("answers", q.name+".txt"), answer.describe())
		})
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
			compareText(t, filepath.Join("answers", q.name+".txt"), answer.describe())
		})
	}
}

// describe tells the status, headers and body, without what differs from one run to the next.
func (a answer) describe() string {
	var text strings.Builder
	fmt.Fprintln(&text, a.Status)
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		if name != "Date" && name != "Content-Length" {
			fmt.Fprintf(&text, "%s: %s\n", name, strings.Join(a.Header[name], ", "))
		}
	}
	fmt.Fprintf(&text, "\n%s\n", withoutChance(a.body))
	return text.String()
}

// withoutChance replaces times and the names of files and programs, which differ from one run to the next.
func withoutChance(text string) string {
	text = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( ?[+-]\d{4} UTC|Z)?( m=[+-][\d.]+)?`).ReplaceAllString(text, "TIME")
	text = regexp.MustCompile(`/[^"\s\x00]*/kubeconfig`).ReplaceAllString(text, "KUBECONFIG")
	return regexp.MustCompile(`/[^"\s\x00]*/(kube-proxy|nftproxy)\b`).ReplaceAllString(text, "PROGRAM")
}

// withoutPeriod replaces the minSyncPeriod that the product has when none is given: it syncs sooner on purpose.
func withoutPeriod(text string) string {
	if subjectName() == upstream {
		return text
	}
	text = strings.Replace(text, `"syncPeriod":"30s","minSyncPeriod":"1ms"`, `"syncPeriod":"30s","minSyncPeriod":"1s"`, 1)
	return regexp.MustCompile(`(?m)(^nftables:(\n  .*)*\n  minSyncPeriod:) 0s$`).ReplaceAllString(text, "$1 1s")
}

// text asks a server of the proxy for a text.
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
