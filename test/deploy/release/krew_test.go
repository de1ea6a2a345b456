package release

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestKrew installs the plugin of each platform with Krew, from the archives of
// the release, and runs the one for this platform.
func TestKrew(t *testing.T) {
	manifest := file(t, "nftproxy.yaml")
	run(t, "go", "tool", "validate-krew-manifest", "-manifest="+manifest, "-skip-install")
	var plugin struct {
		Spec struct {
			Version   string
			Platforms []struct {
				Selector struct{ MatchLabels map[string]string }
				URI      string
			}
		}
	}
	text := read(t, manifest)
	if err := yaml.Unmarshal(text, &plugin); err != nil {
		t.Fatal(err)
	}
	version := environment(t, "VERSION")
	if plugin.Spec.Version != version || len(plugin.Spec.Platforms) != 5 {
		t.Errorf("got manifest\n%s", text)
	}
	for _, p := range plugin.Spec.Platforms {
		system, arch := p.Selector.MatchLabels["os"], p.Selector.MatchLabels["arch"]
		base, archive := filepath.Split(p.URI)
		if base != "https://github.com/nftproxy/nftproxy/releases/download/"+version+"/" {
			t.Errorf("got URI %s", p.URI)
		}
		program := "kubectl-nftproxy"
		if system == "windows" {
			program += ".exe"
		}
		if got := entries(t, file(t, archive)); !slices.Equal(got, []string{program, "LICENSE", "THIRD-PARTY"}) {
			t.Errorf("%s: got %q", archive, got)
		}
		root := t.TempDir()
		env := []string{"KREW_ROOT=" + root, "KREW_OS=" + system, "KREW_ARCH=" + arch}
		out := runIn(t, env, "go", "tool", "krew", "install", "--manifest="+manifest, "--archive="+file(t, archive))
		if !strings.Contains(out, "Installed plugin: nftproxy") {
			t.Errorf("krew: got %s", out)
		}
		if system != "linux" || arch != "amd64" {
			continue
		}
		got, err := exec.Command(filepath.Join(root, "bin", program), "--version").CombinedOutput()
		if want := "kubectl-nftproxy " + version + "\n"; err != nil || string(got) != want {
			t.Errorf("got %v, %s; want %s", err, got, want)
		}
	}
}
