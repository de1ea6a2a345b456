package deploy

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/test/must"
)

// TestLabels checks that each object has the labels that Helm recommends, and
// that the DaemonSet selects its pods, but not the pod of `helm test`: it would
// adopt the pod and delete it.
func TestLabels(t *testing.T) {
	all := decode(t, helmText(t, generic))
	want := labels.Set{
		"app.kubernetes.io/name": "nftproxy", "app.kubernetes.io/instance": "nftproxy",
		"app.kubernetes.io/managed-by": "Helm",
		"app.kubernetes.io/version":    find(t, "Makefile", `(?m)^VERSION \?= (\S+)$`),
		"helm.sh/chart": "nftproxy-" +
			find(t, "deploy/helm/nftproxy/Chart.yaml", `(?m)^version: (\S+)$`),
	}
	set := daemonSet(t, all, "nftproxy").Spec
	selector := set.Selector.MatchLabels
	for name, object := range all {
		m, err := meta.Accessor(object)
		must.NoError(t, err)
		got := labels.Set(m.GetLabels())
		if name == "Pod nftproxy-test" {
			if selector := labels.SelectorFromSet(selector); selector.Matches(got) {
				t.Errorf("the DaemonSet selects %s with labels %v", name, got)
			}
		} else if !labels.SelectorFromSet(want).Matches(got) {
			t.Errorf("%s: got labels %v, want %v", name, got, want)
		}
	}
	if !labels.SelectorFromSet(selector).Matches(labels.Set(set.Template.Labels)) {
		t.Errorf("got pod labels %v, want %v as in the selector", set.Template.Labels, selector)
	}
}

// TestMonitoringObjects checks that the chart contains the alerts and the
// dashboard of deploy/monitoring.
func TestMonitoringObjects(t *testing.T) {
	text := helmText(t, generic, "--set=metrics.expose=true,metrics.podMonitor.enabled=true",
		"--set=metrics.prometheusRule.enabled=true,metrics.prometheusRule.labels.release=prometheus",
		"--set=metrics.dashboard.enabled=true,metrics.dashboard.annotations.grafana_folder=Net")
	found := map[string]map[string]any{}
	for _, document := range strings.Split(text, "\n---\n") {
		var object map[string]any
		must.NoError(t, yaml.Unmarshal([]byte(document), &object))
		if kind, ok := object["kind"].(string); ok && (kind != "ConfigMap" ||
			strings.Contains(document, "-dashboard\n")) {
			found[kind] = object
		}
	}
	if found["PodMonitor"] == nil || found["PrometheusRule"] == nil || found["ConfigMap"] == nil {
		t.Fatalf("got %q, want a PodMonitor, a PrometheusRule and a ConfigMap", slices.Sorted(maps.Keys(found)))
	}
	if diff := cmp.Diff(fields(t, "deploy/monitoring/alerts.yaml"), found["PrometheusRule"]["spec"]); diff != "" {
		t.Errorf("alerts (-deploy/monitoring +chart):\n%s", diff)
	}
	var dashboard any
	data := found["ConfigMap"]["data"].(map[string]any)["nftproxy.json"].(string)
	must.NoError(t, json.Unmarshal([]byte(data), &dashboard))
	if diff := cmp.Diff(fields(t, "deploy/monitoring/dashboard.json"), dashboard); diff != "" {
		t.Errorf("dashboard (-deploy/monitoring +chart):\n%s", diff)
	}
	m := found["PrometheusRule"]["metadata"].(map[string]any)
	if m["labels"].(map[string]any)["release"] != "prometheus" {
		t.Errorf("got metadata %v of the PrometheusRule", m)
	}
}

// TestServiceMonitor checks that the Service of the ServiceMonitor selects the
// pods, and that the job has the name that alerts expect.
func TestServiceMonitor(t *testing.T) {
	text := helmText(t, generic, "--set=metrics.expose=true,metrics.serviceMonitor.enabled=true")
	var service, monitor, set struct {
		Metadata struct{ Labels map[string]string }
		Spec     struct {
			Selector map[string]any
			Template struct {
				Metadata struct{ Labels map[string]string }
			}
			JobLabel string
		}
	}
	for _, document := range strings.Split(text, "\n---\n") {
		for kind, to := range map[string]any{"Service": &service, "ServiceMonitor": &monitor, "DaemonSet": &set} {
			if strings.Contains(document, "\nkind: "+kind+"\n") {
				must.NoError(t, yaml.Unmarshal([]byte(document), to))
			}
		}
	}
	expectSelected := func(selector any, from map[string]string) {
		want, _ := selector.(map[string]any)
		for key, value := range want {
			if from[key] != value {
				t.Errorf("got labels %v, want %s=%v", from, key, value)
			}
		}
		if len(want) == 0 {
			t.Error("got no selector")
		}
	}
	expectSelected(service.Spec.Selector, set.Spec.Template.Metadata.Labels)
	expectSelected(monitor.Spec.Selector["matchLabels"], service.Metadata.Labels)
	if got := service.Metadata.Labels[monitor.Spec.JobLabel]; got != "kube-proxy" {
		t.Errorf("got job %q, want kube-proxy", got)
	}
}

// fields decodes a YAML or JSON file of the repository.
func fields(t *testing.T, path string) (value any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, path))
	must.NoError(t, err)
	must.NoError(t, yaml.Unmarshal(text, &value))
	return value
}

// TestGeneratedFiles checks that the schema and the README of the chart are up
// to date, and that each value is documented.
func TestGeneratedFiles(t *testing.T) {
	schema, err := exec.Command("go", "run", "./schema").Output()
	must.NoError(t, err)
	readme, errs, err := tool("helm-docs", "--chart-search-root="+chart, "--sort-values-order=file", "--dry-run",
		"--log-level=warning")
	if err != nil || errs != "" {
		t.Fatalf("helm-docs: %v\n%s", err, errs)
	}
	for name, want := range map[string]string{"values.schema.json": string(schema), "README.md": readme} {
		got, err := os.ReadFile(filepath.Join(chart, name))
		must.NoError(t, err)
		if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(string(got))); diff != "" {
			t.Errorf("%s is not up to date, run `make chart` (-want +got):\n%s", name, diff)
		}
	}
	if undocumented := regexp.MustCompile(`(?m)^\|.*\|  \|$`).FindAllString(readme, -1); undocumented != nil {
		t.Errorf("values without a description:\n%s", strings.Join(undocumented, "\n"))
	}
}
