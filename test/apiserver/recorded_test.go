package apiserver

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// recorded is the folder with what kube-proxy shows.
const recorded = "testdata/kube-proxy-v1.36.3"

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
