package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func parse(t *testing.T, args ...string) *Options {
	t.Helper()
	o, err := Parse(args)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return o
}

// TestFlagsOfKubeProxy compares the flags with kube-proxy v1.36.3: name,
// shorthand, type, default, value without an argument, and whether it is
// hidden. v1.37.2 has the same flags, except two.
func TestFlagsOfKubeProxy(t *testing.T) {
	data, err := os.ReadFile("testdata/kube-proxy-flags.tsv")
	if err != nil {
		t.Fatal(err)
	}
	ourDefaults := map[string]string{"iptables-min-sync-period": `"` + defaultMinSyncPeriod.String() + `"`}
	want := []string{
		"manifests\t\tstring\t\"\"\t\"\"\tfalse", "service-metrics\t\tstring\t\"off\"\t\"\"\tfalse",
		"local-status-pages\t\tbool\t\"false\"\t\"true\"\tfalse",
		"reset-stale-connections\t\tbool\t\"false\"\t\"true\"\tfalse",
		"eject\t\tbool\t\"true\"\t\"true\"\tfalse",
		"max-service-rows\t\tint\t\"400000\"\t\"\"\tfalse", "max-namespace-rows\t\tint\t\"1000000\"\t\"\"\tfalse",
		"hash-table-size\t\tint\t\"251\"\t\"\"\tfalse",
		"retry-after\t\tduration\t\"1s\"\t\"\"\tfalse",
	}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if d, ok := ourDefaults[words[0]]; ok {
			words[3] = d
		}
		want = append(want, strings.Join(words, "\t"))
	}
	var got []string
	parse(t).cmd.all.VisitAll(func(f *pflag.Flag) {
		got = append(got, fmt.Sprintf("%s\t%s\t%s\t%q\t%q\t%v",
			f.Name, f.Shorthand, f.Value.Type(), f.DefValue, f.NoOptDefVal, f.Hidden))
	})
	checkSame(t, got, want)
	if len(want) < 60 {
		t.Errorf("got %d flags in the list, want at least 60", len(want))
	}
}

// TestFlagEffects checks that each flag has one declaration, and that only the
// listed flags have neither a field of the file nor a reason to be inert.
func TestFlagEffects(t *testing.T) {
	c := parse(t).cmd
	seen, without := make(map[string]bool), []string{"help"}
	for _, f := range c.flags {
		if c.all.Lookup(f.name) == nil || seen[f.name] {
			t.Errorf("%s: unknown flag or second declaration", f.name)
		}
		seen[f.name] = true
		if f.field == "" && f.inert == "" {
			without = append(without, f.name)
		}
	}
	slices.Sort(without)
	want := []string{
		"cleanup", "config", "help", "init-only", "master", "version", "write-config-to",
	}
	if !slices.Equal(without, want) {
		t.Errorf("got flags without field %q, want %q", without, want)
	}
	c.all.VisitAll(func(f *pflag.Flag) {
		if !seen[f.Name] && f.Name != "help" {
			t.Errorf("--%s has no declaration", f.Name)
		}
	})
}

// TestExceptions checks the flags that apply with --config.
func TestExceptions(t *testing.T) {
	const want = "--hostname-override --master --manifests --service-metrics --local-status-pages " +
		"--max-service-rows --max-namespace-rows --reset-stale-connections --eject --retry-after --hash-table-size"
	if got := strings.Join(parse(t).cmd.exceptions(), " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestUsage(t *testing.T) {
	var b bytes.Buffer
	o := parse(t, "--help")
	o.PrintUsage(&b)
	for _, want := range []string{"Source", "Node", "Services", "Servers", "System", "Process", "Logging", "Ignored"} {
		if !strings.Contains(b.String(), "\n"+want+" flags:\n") {
			t.Errorf("the usage has no group %q", want)
		}
	}
	o.cmd.all.VisitAll(func(f *pflag.Flag) {
		if got := strings.Contains(b.String(), "--"+f.Name+" "); got == f.Hidden {
			t.Errorf("--%s: got shown %v, want %v", f.Name, got, !f.Hidden)
		}
	})
}

func TestWriteConfigToMissingDirectory(t *testing.T) {
	err := parse(t, "--write-config-to", filepath.Join(t.TempDir(), "none", "file")).WriteConfig()
	if !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "--write-config-to: ") {
		t.Errorf("got %v", err)
	}
}

func TestWatchWithoutFile(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := new(Options).WatchConfigFile(ctx); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}
