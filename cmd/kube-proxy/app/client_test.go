package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRESTConfigErrors(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(broken, []byte("clusters: 7"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ kubeconfig, want string }{
		{"", "no API server is configured, and this process does not run in a pod: set clientConnection.kubeconfig"},
		{"/no/such/file", `kubeconfig "/no/such/file": stat /no/such/file: no such file or directory; set `},
		{broken, "kubeconfig \"" + broken + "\": "},
		{empty, "no API server is configured; set clientConnection.kubeconfig or --kubeconfig to a file"},
	} {
		_, err := loadRESTConfig(tt.kubeconfig, "")
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: got %v, want %q", tt.kubeconfig, err, tt.want)
		}
	}
}

func TestRESTConfigOfMaster(t *testing.T) {
	const want = "https://192.0.2.1:6443"
	c, err := loadRESTConfig("", want)
	if err != nil || c.Host != want {
		t.Errorf("got %v, %v; want host %s", c, err, want)
	}
}
