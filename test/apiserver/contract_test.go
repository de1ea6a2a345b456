package apiserver

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// recorded is the folder with what kube-proxy shows.
const recorded = "testdata/kube-proxy-v1.36.3"

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
	text = strings.Replace(text, `"syncPeriod":"30s","minSyncPeriod":"10ms"`, `"syncPeriod":"30s","minSyncPeriod":"1s"`, 1)
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

// describeMetrics returns a line "NAME TYPE LABELS" for each metric of a text in Prometheus' format.
func describeMetrics(text string) []string {
	kinds := map[string]string{}
	labels := map[string]map[string]bool{}
	current := ""
	label := regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 4 && fields[0] == "#" && fields[1] == "TYPE":
			current = fields[2]
			kinds[current] = fields[3]
			labels[current] = map[string]bool{}
		case strings.HasPrefix(line, current):
			for _, match := range label.FindAllStringSubmatch(line, -1) {
				labels[current][match[1]] = true
			}
		}
	}
	var out []string
	for name, kind := range kinds {
		out = append(out, strings.TrimSpace(name+" "+kind+" "+strings.Join(slices.Sorted(maps.Keys(labels[name])), ",")))
	}
	slices.Sort(out)
	return out
}

// help returns what --help prints.
func (w *world) help(name string) string {
	w.t.Helper()
	return w.run(w.Node1.Namespace, program(name), "--help")
}

// describeFlags returns a line "NAME TYPE DEFAULT" for each flag of a help text.
func describeFlags(help string) []string {
	flag := regexp.MustCompile(`^ +(?:-\w, )?--([\w-]+)(\[=\S+\])?(?: (\S+))?(?:   *|$)(.*)`)
	value := regexp.MustCompile(`\(default (.*?)\)(?: \(DEPRECATED|\.? |\.?$)`)
	var out []string
	for _, text := range joinFlags(help) {
		match := flag.FindStringSubmatch(text)
		if match == nil {
			continue
		}
		described := match[1] + match[2] + " " + match[3]
		if found := value.FindStringSubmatch(match[4]); found != nil {
			described += " " + found[1]
		}
		out = append(out, strings.TrimSpace(described))
	}
	slices.Sort(out)
	return out
}

// joinFlags returns a line for each flag of a help text, whose text may have several.
func joinFlags(help string) []string {
	var out []string
	begin := regexp.MustCompile(`^ +(-\w, )?--`)
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n")
		switch {
		case begin.MatchString(line):
			out = append(out, line)
		case len(out) > 0 && strings.HasPrefix(line, " "):
			out[len(out)-1] += " " + strings.TrimSpace(line)
		}
	}
	return out
}

// compareFlags wants all recorded flags with their defaults. The product names types in its own way, so that it is compared only whether there is a
// value to give.
func compareFlags(t *testing.T, got []string) {
	t.Helper()
	if *record || subjectName() == upstream {
		compare(t, "flags.txt", got, all)
		return
	}
	valued := func(line string) string {
		name, rest, _ := strings.Cut(line, " ")
		kind, value, _ := strings.Cut(rest, " ")
		return fmt.Sprintf("%s value=%t default=%s", name, kind != "", strings.TrimSpace(value))
	}
	var have []string
	for _, line := range got {
		have = append(have, valued(line))
	}
	for line := range strings.Lines(expected(t, "flags.txt", "")) {
		want := valued(strings.TrimSpace(line))
		if name, _, _ := strings.Cut(want, " "); slices.Contains(otherDefaults(), name) {
			want, _, _ = strings.Cut(want, " default=")
		}
		if !slices.ContainsFunc(have, func(line string) bool { return line == want || strings.HasPrefix(line, want+" ") }) {
			t.Errorf("missing: %s", want)
		}
	}
}

// describeFlagPage returns a line "NAME VALUE" for each flag that /flagz shows.
func describeFlagPage(page string) []string {
	var out []string
	for line := range strings.Lines(page) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			out = append(out, strings.TrimSpace(name+" "+value))
		}
	}
	return out
}

// unlessSet accepts that a flag which the proxy was given has another value, or that the default is another one on purpose.
func (p *proxy) unlessSet(line string) bool {
	name, _, _ := strings.Cut(line, " ")
	if slices.Contains(otherDefaults(), name) {
		return false
	}
	return !slices.ContainsFunc(p.flags, func(flag string) bool { return strings.HasPrefix(strings.TrimLeft(flag, "-"), name) })
}

// otherDefaults are the flags whose defaults the product has changed on purpose: it syncs sooner, and --nodeport-addresses is shown as the mode means it.
func otherDefaults() []string { return []string{"iptables-min-sync-period", "nodeport-addresses"} }

// sometimes are the metrics that kube-proxy shows once it has something to tell (pkg/proxy/metrics). The product shows them from the start.
func sometimes() []string {
	return []string{
		"kubeproxy_sync_partial_proxy_rules_duration_seconds histogram ip_family,le",
		"kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total counter ip_family",
		"kubeproxy_sync_proxy_rules_nftables_sync_failures_total counter ip_family",
	}
}

// unlessLinked accepts that metrics are missing which kube-proxy has because it is linked with the libraries of API servers.
func unlessLinked(line string) bool {
	return subjectName() == upstream || !strings.HasPrefix(line, "aggregator_") && !strings.HasPrefix(line, "apiserver_")
}

// all accepts nothing.
func all(string) bool { return true }

// flagLines runs the proxy so that it logs all flags with their values, and does no more.
func (w *world) flagLines(name string) string {
	w.t.Helper()
	cmd := w.Node1.Command(context.Background(), program(name), "-v=1", "--write-config-to="+filepath.Join(w.t.TempDir(), "config"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// describeFlagLines returns a line "NAME VALUE" for each flag, those that --help does not show too.
func describeFlagLines(log string) []string {
	var out []string
	for _, match := range regexp.MustCompile(`FLAG: --([\w-]+)="(.*)"`).FindAllStringSubmatch(log, -1) {
		if match[1] != "write-config-to" {
			out = append(out, strings.TrimSpace(match[1]+" "+match[2]))
		}
	}
	slices.Sort(out)
	return out
}

// defaults returns the configuration file that the proxy writes when it is told the mode alone.
func (w *world) defaults(name string) string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "config")
	w.run(w.Node1.Namespace, program(name), "--proxy-mode=nftables", "--write-config-to="+path)
	text, err := os.ReadFile(path)
	w.must(err)
	return string(text)
}

// compare wants all recorded lines that count, and accepts more.
func compare(t *testing.T, file string, got []string, counts func(line string) bool) {
	t.Helper()
	text := strings.Join(got, "\n") + "\n"
	want := strings.Split(strings.TrimSpace(expected(t, file, text)), "\n")
	for _, line := range want {
		if counts(line) && !slices.Contains(got, line) {
			t.Errorf("%s: missing: %s", file, line)
		}
	}
}

// compareText wants the recorded text.
func compareText(t *testing.T, file, got string) {
	t.Helper()
	got = withoutPeriod(got)
	if want := expected(t, file, got); got != want {
		t.Errorf("%s:\n%s\nwant:\n%s", file, got, want)
	}
}

// expected returns the recorded text of a file, which is got itself when it is to be recorded.
func expected(t *testing.T, file, got string) string {
	t.Helper()
	path := filepath.Join(recorded, file)
	if *record {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return got
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
