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
		{"", "which API server to watch is not known: this is no pod; name it with clientConnection.kubeconfig"},
		{"/no/such/file", `kubeconfig "/no/such/file": stat /no/such/file: no such file or directory; name a readable kubeconfig`},
		{broken, "kubeconfig \"" + broken + "\": "},
		{empty, "it names no API server; name a readable kubeconfig with a cluster and a user"},
	} {
		_, err := loadRESTConfig(tt.kubeconfig, "")
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: got %v, want %q", tt.kubeconfig, err, tt.want)
		}
	}
}

func TestRESTConfigOfAnAddress(t *testing.T) {
	c, err := loadRESTConfig("", "https://192.0.2.1:6443")
	if err != nil || c.Host != "https://192.0.2.1:6443" {
		t.Errorf("got %v, %v", c, err)
	}
}
