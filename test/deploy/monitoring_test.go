package deploy

import (
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/nftproxy/nftproxy/test/must"
)

// knownMetrics returns the metrics of kube-proxy v1.36 in nftables mode, and
// our metrics, whose names it reads from the source. A histogram has three
// series.
func knownMetrics(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, name := range namesIn(t, "testdata/kube-proxy-metrics.txt", `(?m)^(\w+)$`) {
		known[name] = true
		if strings.HasSuffix(name, "_duration_seconds") {
			known[name+"_bucket"], known[name+"_count"], known[name+"_sum"] = true, true, true
		}
	}
	for _, name := range ownMetrics(t) {
		known[name] = true
	}
	return known
}

// ownMetrics returns the names of our metrics in the source, sorted.
func ownMetrics(t *testing.T) (names []string) {
	t.Helper()
	for _, folder := range []string{
		"proxier", "proxier/checker", "proxier/ejector", "proxier/follow", "cmd/kube-proxy/app",
	} {
		files, err := filepath.Glob(filepath.Join(repository, folder, "*.go"))
		must.NoError(t, err)
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				names = append(names, namesIn(t, file, `"(nftproxy_[a-z_]+)"`)...)
			}
		}
	}
	slices.Sort(names)
	if len(names) < 20 {
		t.Fatalf("got %d metrics of our own from the source, want at least 20", len(names))
	}
	return names
}

// namesIn returns the first group of all matches of a pattern in a file.
func namesIn(t *testing.T, file, pattern string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	must.NoError(t, err)
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
	}
	return names
}

// docs/metrics.md lists our metrics.
func TestMetricsPage(t *testing.T) {
	listed := namesIn(t, filepath.Join(repository, "docs/metrics.md"), "(?m)^\\| `(nftproxy_[a-z_]+)`")
	slices.Sort(listed)
	if diff := cmp.Diff(ownMetrics(t), listed); diff != "" {
		t.Errorf("metrics (-source +docs/metrics.md):\n%s", diff)
	}
}

// checkQuery checks the syntax of a query and that its metrics exist.
func checkQuery(t *testing.T, known map[string]bool, where, query string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v in %s", where, err, query)
		return
	}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			for _, m := range s.LabelMatchers {
				if m.Name == model.MetricNameLabel && !known[m.Value] {
					t.Errorf("%s: unknown metric %s", where, m.Value)
				}
			}
		}
		return nil
	})
}

// alerts returns the alerting rules.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	path := filepath.Join(repository, "deploy/monitoring/alerts.yaml")
	promql := parser.NewParser(parser.Options{})
	groups, errs := rulefmt.ParseFile(path, false, model.UTF8Validation, promql, slog.Default())
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || len(groups.Groups[0].Rules) < 5 {
		t.Fatalf("got rules %+v", groups)
	}
	return groups.Groups[0].Rules
}

// Each alert uses known metrics, and its annotations name its section of
// docs/alerts.md. The page has no other sections.
func TestAlerts(t *testing.T) {
	const runbooks = "https://github.com/nftproxy/nftproxy/blob/main/docs/alerts.md#"
	known := knownMetrics(t)
	var names []string
	for _, rule := range alerts(t) {
		names = append(names, rule.Alert)
		checkQuery(t, known, rule.Alert, rule.Expr)
		if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" ||
			rule.Annotations["description"] == "" ||
			rule.Annotations["runbook_url"] != runbooks+strings.ToLower(rule.Alert) {
			t.Errorf("%s: got labels %v, annotations %v", rule.Alert, rule.Labels, rule.Annotations)
		}
	}
	sections := namesIn(t, filepath.Join(repository, "docs/alerts.md"), `(?m)^## (\w+)$`)
	if diff := cmp.Diff(names, sections); diff != "" {
		t.Errorf("alerts (-alerts.yaml +docs/alerts.md):\n%s", diff)
	}
}

// promtool evaluates the alerts of testdata/alerts.yaml, in which each alert
// fires for a bad node, and not for a good one.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	const tests = "testdata/alerts.yaml"
	fired := namesIn(t, tests, `\{value: 1, labels: 'ALERTS\{alertname="(\w+)", alertstate="firing"`)
	for _, rule := range alerts(t) {
		if !slices.Contains(fired, rule.Alert) {
			t.Errorf("%s does not fire in %s", rule.Alert, tests)
		}
	}
	// Without this tag, promtool contains the libraries of all clouds.
	const tag, promtool = "remove_all_sd", "github.com/prometheus/prometheus/cmd/promtool"
	out, err := exec.Command("go", "run", "-tags", tag, promtool, "test", "rules", tests).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// panel has the fields of a Grafana panel that TestDashboard checks.
type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ H, W, X, Y int }
	Targets []struct{ Expr, RefID string }
}

func TestDashboard(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "deploy/monitoring/dashboard.json"))
	must.NoError(t, err)
	var dashboard struct {
		UID, Title string
		Panels     []panel
	}
	must.NoError(t, json.Unmarshal(text, &dashboard))
	known, ids, shown := knownMetrics(t), map[int]bool{}, 0
	variables := strings.NewReplacer(
		"$__rate_interval", "5m", "$__range", "1h", "$job", "kube-proxy", "$instance", "all")
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 || p.GridPos.H == 0 {
			t.Errorf("panel %d, %q: duplicate id or invalid position %+v", p.ID, p.Title, p.GridPos)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			shown++
			checkQuery(t, known, p.Title, variables.Replace(target.Expr))
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q has no query", p.Title)
		}
	}
	if shown < 20 {
		t.Errorf("got %d queries, want at least 20", shown)
	}
}
