package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestVersions checks that the Makefile, the programs, the chart, the
// kustomization and the commands in the documentation have the same version.
func TestVersions(t *testing.T) {
	want := find(t, "Makefile", `(?m)^VERSION \?= (\S+)$`)
	for path, pattern := range map[string]string{
		"cmd/kube-proxy/app/version.go": `var Version = "(\S+)"`,
		"cmd/kubectl-nftproxy/main.go":  `var version = "(\S+)"`,
		"README.md":                     `(?:ghcr\.io/nftproxy/nftproxy:|\?ref=)(v[^\s',]+)`,
		"docs/install/kubeadm.md":       `ghcr\.io/nftproxy/nftproxy:(v[^\s,]+)`,
		"docs/install/talos.md":         `ghcr\.io/nftproxy/nftproxy:(v[0-9.]+)`,
		"docs/releases.md": `(?:nftproxy:|tags/|download/|git tag -s |origin |checkout )` +
			`(v\d+\.\d+\.\d+)`,
		"deploy/README.md":                         `(?:ghcr\.io/nftproxy/nftproxy:|\?ref=)(v[^\s']+)`,
		"deploy/helm/nftproxy/Chart.yaml":          `(?m)^appVersion: (\S+)$`,
		"deploy/kustomize/base/kustomization.yaml": `(?m)^  newTag: (\S+)`,
	} {
		if got := find(t, path, pattern); got != want {
			t.Errorf("%s: got version %s, want %s", path, got, want)
		}
	}
	const images = `image: ghcr\.io/nftproxy/nftproxy:(\S+)` // of Artifact Hub
	if got := find(t, "deploy/helm/nftproxy/Chart.yaml", images); got != want {
		t.Errorf("got image %s of the chart, want %s", got, want)
	}
	for path, pattern := range map[string]string{
		"deploy/helm/nftproxy/Chart.yaml": `(?m)^version: (\S+)$`,
		"README.md":                       `charts/nftproxy --version (\S+)`,
		"deploy/README.md":                `charts/nftproxy --version (\S+)`,
	} {
		if got := "v" + find(t, path, pattern); got != want {
			t.Errorf("%s: got chart version %s, want %s", path, got, want)
		}
	}
}

// find returns the match of the pattern's group in a file of the repository.
// All matches must be equal.
func find(t *testing.T, path, pattern string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, path))
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1)
	if len(all) == 0 {
		t.Fatalf("%s: no match of %s", path, pattern)
	}
	for _, m := range all {
		if m[1] != all[0][1] {
			t.Errorf("%s: got both %s and %s", path, m[1], all[0][1])
		}
	}
	return all[0][1]
}
