package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the expected outcome in testdata")

// archives returns the txtar files of testdata. Each of them has a
// configuration file, config.yaml, and the expected outcome in these
// sections:
//
//	error          the error of Parse
//	warnings       the warnings, one per line
//	configuration  the whole configuration
//	differences    the fields that differ from defaults.txtar
func archives(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("got %d archives in testdata, %v", len(files), err)
	}
	return files
}

func readArchive(t *testing.T, path string) *txtar.Archive {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// section returns a section of an archive, nil if there is none.
func section(a *txtar.Archive, name string) []byte {
	i := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return a.Files[i].Data
}

// extract writes the config.yaml of an archive to a new directory and returns
// its path.
func extract(t *testing.T, archive string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, string(section(readArchive(t, archive), "config.yaml")))
	return file
}

func TestFiles(t *testing.T) {
	defaults := section(readArchive(t, "testdata/defaults.txtar"), "configuration")
	for _, path := range archives(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			file, archive := extract(t, path), readArchive(t, path)
			full := section(archive, "configuration") != nil
			got := &txtar.Archive{Comment: archive.Comment, Files: archive.Files[:1:1]}
			add := func(name, text string) {
				text = strings.ReplaceAll(text, file, "config.yaml")
				got.Files = append(got.Files, txtar.File{Name: name, Data: []byte(text)})
			}
			o, err := Parse([]string{"--config", file})
			if err != nil {
				add("error", err.Error()+"\n")
				compare(t, path, got)
				return
			}
			if w := o.Warnings(); len(w) > 0 {
				add("warnings", strings.Join(w, "\n")+"\n")
			}
			configuration, err := yaml.Marshal(o.Configuration)
			if err != nil {
				t.Fatal(err)
			}
			if full {
				add("configuration", string(configuration))
			} else {
				differ, err := differences(defaults, configuration)
				if err != nil {
					t.Fatal(err)
				}
				add("differences", strings.Join(differ, "\n")+"\n")
			}
			compare(t, path, got)
		})
	}
}

// compare compares an archive with its file, or rewrites the file with
// -update.
func compare(t *testing.T, path string, archive *txtar.Archive) {
	t.Helper()
	got := string(txtar.Format(archive))
	if *update {
		write(t, path, got)
	}
	if want := string(txtar.Format(readArchive(t, path))); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestUnreadableFile(t *testing.T) {
	_, err := Parse([]string{"--config", "testdata/none"})
	const want = "--config: open testdata/none: no such file or directory"
	if !errors.Is(err, os.ErrNotExist) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestWriteConfig writes configurations with --write-config-to and reads them
// back.
func TestWriteConfig(t *testing.T) {
	cases := [][]string{
		{},
		{"--iptables-min-sync-period=3s", "--cluster-cidr=10.0.0.0/8", "--masquerade-all", "-v=3",
			"--feature-gates=LoggingAlphaOptions=true", "--log-text-split-stream"},
		{"--bind-address=::1", "--healthz-bind-address=10.0.0.1", "--healthz-port=5"},
	}
	for _, path := range archives(t) {
		if section(readArchive(t, path), "error") == nil {
			cases = append(cases, []string{"--config", extract(t, path)})
		}
	}
	for _, args := range cases {
		out := filepath.Join(t.TempDir(), "written.yaml")
		first := parse(t, append(args, "--write-config-to", out)...)
		if err := first.WriteConfig(); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		second := parse(t, "--config", out)
		if w := second.Warnings(); len(w) > 0 && first.ConfigFile == "" {
			t.Errorf("%q: got warnings %q, want none", args, w)
		}
		if got, want := inJSON(second.Configuration), inJSON(first.Configuration); got != want {
			t.Errorf("%q:\n got %s\nwant %s", args, got, want)
		}
		written, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(written), "minSyncPeriod: "+defaultMinSyncPeriod.String()) {
			t.Errorf("%q: the file contains our default of minSyncPeriod", args)
		}
	}
	o := parse(t, "--write-config-to", filepath.Join(t.TempDir(), "none", "file"))
	err := o.WriteConfig()
	if !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "--write-config-to: ") {
		t.Errorf("a missing directory: got %v", err)
	}
}
