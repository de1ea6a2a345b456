package deploy

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// kubeProxyMetrics are the metrics of kube-proxy v1.36 in nftables mode.
var kubeProxyMetrics = strings.Fields(`
	kubeproxy_conntrack_reconciler_deleted_entries_total
	kubeproxy_conntrack_reconciler_sync_duration_seconds
	kubeproxy_network_programming_duration_seconds
	kubeproxy_proxy_healthz_total
	kubeproxy_proxy_livez_total
	kubeproxy_sync_full_proxy_rules_duration_seconds
	kubeproxy_sync_partial_proxy_rules_duration_seconds
	kubeproxy_sync_proxy_rules_duration_seconds
	kubeproxy_sync_proxy_rules_endpoint_changes_pending
	kubeproxy_sync_proxy_rules_endpoint_changes_total
	kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds
	kubeproxy_sync_proxy_rules_last_timestamp_seconds
	kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total
	kubeproxy_sync_proxy_rules_nftables_sync_failures_total
	kubeproxy_sync_proxy_rules_no_local_endpoints_total
	kubeproxy_sync_proxy_rules_service_changes_pending
	kubeproxy_sync_proxy_rules_service_changes_total
	rest_client_requests_total
	process_cpu_seconds_total process_resident_memory_bytes up`)

// knownMetrics returns kubeProxyMetrics and our metrics, whose names it reads
// from the source. A histogram has three series.
func knownMetrics(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, name := range kubeProxyMetrics {
		known[name] = true
		if strings.HasSuffix(name, "_duration_seconds") {
			known[name+"_bucket"], known[name+"_count"], known[name+"_sum"] = true, true, true
		}
	}
	count := 0
	for _, file := range []string{"metrics.go", "tablemetrics.go"} {
		text, err := os.ReadFile(filepath.Join(repository, "proxier", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"(nftproxy_[a-z_]+)"`).FindAllStringSubmatch(string(text), -1) {
			known[m[1]] = true
			count++
		}
	}
	if count < 10 {
		t.Fatalf("got %d metrics of our own from package proxier, want at least 10", count)
	}
	return known
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

func TestAlerts(t *testing.T) {
	known := knownMetrics(t)
	path := filepath.Join(repository, "deploy/monitoring/alerts.yaml")
	promql := parser.NewParser(parser.Options{})
	groups, errs := rulefmt.ParseFile(path, false, model.UTF8Validation, promql, slog.Default())
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || len(groups.Groups[0].Rules) < 5 {
		t.Fatalf("got rules %+v", groups)
	}
	for _, rule := range groups.Groups[0].Rules {
		checkQuery(t, known, rule.Alert, rule.Expr)
		if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s: got labels %v, annotations %v", rule.Alert, rule.Labels, rule.Annotations)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		UID, Title string
		Panels     []panel
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
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
