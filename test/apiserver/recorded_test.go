package apiserver

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/must"
)

// recorded is the folder of kube-proxy's recorded answers.
const recorded = "testdata/kube-proxy-v1.37.2"

// compare checks for the recorded lines that are required. Others are
// allowed.
func compare(t *testing.T, file string, got []string, required func(line string) bool) {
	t.Helper()
	text := strings.Join(got, "\n") + "\n"
	want := strings.Split(strings.TrimSpace(expected(t, file, text)), "\n")
	for _, line := range want {
		if required(line) && !slices.Contains(got, line) {
			t.Errorf("%s: missing: %s", file, line)
		}
	}
}

// compareText checks for the recorded text.
func compareText(t *testing.T, file, got string) {
	t.Helper()
	got = withoutPeriod(got)
	if want := expected(t, file, got); got != want {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

// expected returns the recorded text of a file. With -record it records got.
func expected(t *testing.T, file, got string) string {
	t.Helper()
	path := filepath.Join(recorded, file)
	if *record {
		must.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		return got
	}
	text, err := os.ReadFile(path)
	must.NoError(t, err)
	return string(text)
}

// otherDefaults returns the flags whose defaults differ on purpose: the
// product syncs sooner, and shows the effective --nodeport-addresses.
func otherDefaults() []string { return []string{"iptables-min-sync-period", "nodeport-addresses"} }

// sometimes returns the metrics that kube-proxy shows after the first
// observation (pkg/proxy/metrics). The product shows them from the start.
func sometimes() []string {
	return []string{
		"kubeproxy_sync_partial_proxy_rules_duration_seconds histogram ip_family,le",
		"kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total counter ip_family",
		"kubeproxy_sync_proxy_rules_nftables_sync_failures_total counter ip_family",
	}
}

// unlessLinked does not require metrics that kube-proxy has only because it
// links the libraries of API servers.
func unlessLinked(line string) bool {
	return subjectName() == upstream || !strings.HasPrefix(line, "aggregator_") &&
		!strings.HasPrefix(line, "apiserver_")
}

// all requires all lines.
func all(string) bool { return true }
