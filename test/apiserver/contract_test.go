package apiserver

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
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
	w.expose("web", []string{"a1", "b1"})
	p := w.proxy(name, "--profiling")
	p.startSynced()
	w.reaches("a1 b1", w.routes("web")...)
	// Some metrics appear with their first observation.
	w.setEndpoints("web", "web", []string{"a2", "b1"}, time.Now())
	w.reaches("a2 b1", w.routes("web")...)
	_, err := p.get(healthAddress, "/livez")
	w.must(err)

	t.Run("metrics", func(t *testing.T) {
		metrics := describeMetrics(t, p.text(t, metricsAddress, "/metrics"))
		compare(t, "metrics.txt", metrics, unlessLinked)
		for _, line := range sometimes() {
			if name == product && !slices.Contains(metrics, line) {
				t.Errorf("missing: %s", line)
			}
		}
	})
	t.Run("slis", func(t *testing.T) {
		compare(t, "slis.txt", describeMetrics(t, p.text(t, metricsAddress, "/metrics/slis")), all)
	})
	t.Run("answers", func(t *testing.T) { compareAnswers(t, p, questions...) })
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
	w.kubectl("", "taint", "node", "node1", "ToBeDeletedByClusterAutoscaler=1:NoSchedule")
	p.eventually("/healthz of a node to be removed", func() error {
		answer, err := p.get(healthAddress, "/healthz")
		if err == nil && answer.StatusCode == 200 {
			err = fmt.Errorf("%s", answer.Status)
		}
		return err
	})
	t.Run("leaving", func(t *testing.T) {
		compareAnswers(t, p, "health/leaving-healthz", "health/leaving-livez")
	})
}

// questions are requests to a healthy proxy: the server, and the name of the
// file with the recorded answer. The path is its name, unless paths has it.
var questions = strings.Fields(`health/healthz health/livez health/health-other
	metrics/metrics-healthz metrics/metrics-healthz-verbose metrics/metrics-livez metrics/metrics-other
	metrics/proxyMode metrics/configz metrics/flags-v metrics/pprof-cmdline metrics/flagz metrics/statusz
	metrics/pprof`)

var paths = map[string]string{
	"health-other": "other", "leaving-healthz": "healthz", "leaving-livez": "livez",
	"metrics-healthz": "healthz", "metrics-healthz-verbose": "healthz?verbose", "metrics-livez": "livez",
	"metrics-other": "other", "flags-v": "debug/flags/v", "pprof-cmdline": "debug/pprof/cmdline",
	"pprof": "debug/pprof/",
}

func compareAnswers(t *testing.T, p *proxy, questions ...string) {
	t.Helper()
	for _, question := range questions {
		server, name, _ := strings.Cut(question, "/")
		address := map[string]string{"health": healthAddress, "metrics": metricsAddress}[server]
		t.Run(name, func(t *testing.T) {
			answer, err := p.get(address, "/"+cmp.Or(paths[name], name))
			if err != nil {
				t.Fatal(err)
			}
			if name == "flagz" || name == "statusz" || name == "pprof" { // the body varies between runs
				answer.body = ""
			}
			compareText(t, filepath.Join("answers", name+".txt"), answer.describe())
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
