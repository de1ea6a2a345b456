package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the expected results anew")

// golden compares text with a file beside the tested one.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n got:\n%s\nwant:\n%s", file, got, want)
	}
}

func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	return files
}

// Each bad file is refused, with a line for each wrong field.
func TestBadFiles(t *testing.T) {
	for _, file := range filesIn(t, "bad") {
		_, err := Parse([]string{"--config", file})
		if err == nil {
			t.Errorf("%s is accepted", file)
			continue
		}
		for line := range strings.Lines(err.Error()) {
			if !strings.HasPrefix(line, file+": ") {
				t.Errorf("%s: line without the file's name: %s", file, line)
			}
		}
		golden(t, strings.TrimSuffix(file, ".yaml")+".error", err.Error()+"\n")
	}
}

// Each good file gives the configuration beside it, with its warnings.
func TestGoodFiles(t *testing.T) {
	for _, file := range filesIn(t, "good") {
		o, err := Parse([]string{"--config", file})
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		out, err := yaml.Marshal(o.Configuration)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, w := range o.Warnings() {
			b.WriteString("# " + w + "\n")
		}
		golden(t, strings.TrimSuffix(file, ".yaml")+".result", b.String()+string(out))
	}
}

func TestUnreadableFile(t *testing.T) {
	_, err := Parse([]string{"--config", "testdata/none"})
	want := "--config: open testdata/none: no such file or directory: name a readable file with a KubeProxyConfiguration"
	if !errors.Is(err, os.ErrNotExist) || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

// What --write-config-to writes means the same when it is read.
func TestWriteConfig(t *testing.T) {
	cases := [][]string{
		{}, {"--iptables-min-sync-period=3s", "--cluster-cidr=10.0.0.0/8", "--masquerade-all", "-v=3", "--feature-gates=LoggingAlphaOptions=true", "--log-text-split-stream"},
		{"--bind-address=::1", "--healthz-bind-address=10.0.0.1", "--healthz-port=5"},
	}
	for _, file := range filesIn(t, "good") {
		cases = append(cases, []string{"--config", file})
	}
	for _, args := range cases {
		out := filepath.Join(t.TempDir(), "config.yaml")
		first, err := Parse(append(args, "--write-config-to", out))
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		if err := first.WriteConfig(); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		second, err := Parse([]string{"--config", out})
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		if w := second.Warnings(); len(w) > 0 && !strings.Contains(strings.Join(args, ""), "testdata") {
			t.Errorf("%q: warnings %q", args, w)
		}
		if a, b := inJSON(first.Configuration), inJSON(second.Configuration); a != b {
			t.Errorf("%q:\nwritten %s\n   read %s", args, a, b)
		}
		read, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if byDefault := strings.Contains(string(read), "minSyncPeriod: "+DefaultMinSyncPeriod.String()); byDefault {
			t.Errorf("%q: our default of minSyncPeriod is written for kube-proxy to read", args)
		}
	}
	o, err := Parse([]string{"--write-config-to", filepath.Join(t.TempDir(), "none", "file")})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.WriteConfig(); !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "--write-config-to: ") {
		t.Errorf("a directory that is not there: %v", err)
	}
}
