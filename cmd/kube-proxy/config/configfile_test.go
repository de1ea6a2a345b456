package config

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"
)

const before = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
nftables: {minSyncPeriod: 1s}
`

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func symlink(t *testing.T, to, from string) {
	t.Helper()
	if err := os.Symlink(to, from); err != nil {
		t.Fatal(err)
	}
}

// watching watches a file while steps change it. After each step the watch
// reads the file twice. It returns the error of the watch, and whether the
// watch ended before its context.
func watching(t *testing.T, file string, flags []string, steps ...func()) (err error, ended bool) {
	t.Helper()
	o, err := Parse(append([]string{"--config", file}, flags...))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			err = o.WatchConfigFile(ctx)
			ended = ctx.Err() == nil
		}()
		for _, step := range steps {
			step()
			time.Sleep(2*watchInterval + watchInterval/2)
		}
		cancel()
		<-done
	})
	return err, ended
}

// TestWatchConfigMap replaces a file as the kubelet does in the volume of a
// ConfigMap: the file is a link to ..data/FILE, and the kubelet replaces the
// link ..data.
func TestWatchConfigMap(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	changed := strings.Replace(before, "1s", "2s", 1)
	for name, content := range map[string]string{"..1": before, "..2": before, "..3": changed} {
		if err := os.Mkdir(path(name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, path(name+"/config.conf"), content)
	}
	symlink(t, "..1", path("..data"))
	symlink(t, "..data/config.conf", path("config.conf"))
	swap := func(to string) func() {
		return func() {
			symlink(t, to, path("..data_tmp"))
			if err := os.Rename(path("..data_tmp"), path("..data")); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func() { os.RemoveAll(path("..1")) }
	err, ended := watching(t, path("config.conf"), nil, func() {}, swap("..2"), remove)
	if ended || err != nil {
		t.Errorf("the same content in another directory: got %v, want no end", err)
	}
	err, ended = watching(t, path("config.conf"), nil, swap("..3"))
	want := `content of the configuration file ` + path("config.conf") +
		` was updated: nftables.minSyncPeriod "1s" -> "2s"; exiting for a restart`
	if !ended || err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestWatchMissingFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.conf")
	write(t, file, before)
	remove := func() { os.Remove(file) }
	restore := func() { write(t, file, before) }
	change := func() { write(t, file, before+"oomScoreAdj: 5\n") }
	if err, ended := watching(t, file, nil, remove, restore, remove); ended || err != nil {
		t.Errorf("removed and restored: got %v, want no end", err)
	}
	restore()
	err, ended := watching(t, file, nil, remove, change)
	if !ended || !strings.Contains(err.Error(), ": oomScoreAdj none -> 5; ") {
		t.Errorf("removed and changed: got %v", err)
	}
}

// TestWatchChangeBeforeFirstRead changes the file between Parse and the first
// read of the watch.
func TestWatchChangeBeforeFirstRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.conf")
	write(t, file, before)
	change := func() { write(t, file, strings.Replace(before, "1s", "3s", 1)) }
	if err, ended := watching(t, file, nil, change); !ended || err == nil {
		t.Errorf("got %v, want a change", err)
	}
}

// TestWatchPartlyWrittenFile reads a partly written file once.
func TestWatchPartlyWrittenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.conf")
	write(t, file, before)
	o, err := Parse([]string{"--config", file})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- o.WatchConfigFile(ctx) }()
		time.Sleep(watchInterval / 2)
		write(t, file, before[:strings.Index(before, "nftables:")]) // a valid file
		time.Sleep(watchInterval)                                   // read once
		write(t, file, before)
		time.Sleep(5 * watchInterval)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("got %v, want no error", err)
		}
	})
}

func TestWatchWithoutFile(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := new(Options).WatchConfigFile(ctx); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}

// logged collects the lines of klog until the test ends.
func logged(t *testing.T) *[]string {
	lines := new([]string)
	klog.SetLogger(funcr.New(func(_, line string) { *lines = append(*lines, line) }, funcr.Options{}))
	t.Cleanup(klog.ClearLogger)
	return lines
}

// TestWatchInvalidContent checks that invalid content is logged once and does
// not end the watch, and that a later correction does.
func TestWatchInvalidContent(t *testing.T) {
	for _, tt := range []struct {
		name, content string
		flags         []string
		want          string // in the log
	}{
		{"another kind", strings.Replace(before, "KubeProxy", "Kubelet", 1), nil, `is not supported: want apiVersion`},
		{"no YAML", before + "}", nil, ": cannot be decoded"},
		{"nothing", "", nil, ": kind is missing"},
		{"mode", strings.Replace(before, "mode: nftables", "mode: iptables", 1), nil,
			`: mode: \"iptables\" is not supported`},
		{"value", before + "oomScoreAdj: 5000\n", nil, ": oomScoreAdj: 5000 is not in the range"},
		{"after defaults", strings.Replace(before, "1s", "31s", 1), nil,
			": nftables.minSyncPeriod: 31s is greater than the sync period, 30s"},
		{"feature gate", before + "featureGates: {NFTablesNetlink: maybe}\n", nil, "featureGates of type bool"},
		{"with a flag", before + "featureGates: {LoggingAlphaOptions: false}\n", []string{"--log-text-split-stream"},
			"Feature LoggingAlphaOptions is disabled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.conf")
			initial := before
			if tt.flags != nil {
				initial += "featureGates: {LoggingAlphaOptions: true}\n"
			}
			write(t, file, initial)
			lines := logged(t)
			put := func(content string) func() { return func() { write(t, file, content) } }
			err, ended := watching(t, file, tt.flags, put(tt.content), func() {}, put(initial), func() {})
			if ended || err != nil {
				t.Errorf("got %v, want no end", err)
			}
			if len(*lines) != 2 {
				t.Fatalf("got %d log lines, want 2: %q", len(*lines), *lines)
			}
			for _, want := range []string{"keeping the current configuration", file, tt.want} {
				if !strings.Contains((*lines)[0], want) {
					t.Errorf("got log line %s, want %s", (*lines)[0], want)
				}
			}
			if want := "matches the current configuration again"; !strings.Contains((*lines)[1], want) {
				t.Errorf("got log line %s, want %s", (*lines)[1], want)
			}
			err, ended = watching(t, file, tt.flags, put(tt.content), put(initial+"configSyncPeriod: 5m\n"))
			want := `updated: configSyncPeriod none -> "5m"; exiting`
			if !ended || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("after a correction: got %v, want %s", err, want)
			}
		})
	}
}

// TestWatchAppliesFlags checks that the flags of the command line override
// the new content: content that is invalid without them is valid with them.
func TestWatchAppliesFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.conf")
	write(t, file, before)
	update := func() { write(t, file, before+"hostnameOverride: ' '\n") }
	if err, ended := watching(t, file, []string{"--hostname-override=node1"}, update); !ended || err == nil {
		t.Errorf("with --hostname-override: got %v, want a change", err)
	}
	write(t, file, before)
	if err, ended := watching(t, file, nil, update); ended || err != nil {
		t.Errorf("without --hostname-override: got %v, want no end", err)
	}
}

func TestChanges(t *testing.T) {
	for _, tt := range []struct{ after, want string }{
		{before + "# comment\n", "no field has another value"},
		{strings.Replace(before, "nftables\n", "ipvs\n", 1) + "conntrack: {min: 1, maxPerCore: 0}\n",
			`conntrack.maxPerCore none -> 0, conntrack.min none -> 1, mode "nftables" -> "ipvs"`},
		{strings.Replace(before, "nftables: {minSyncPeriod: 1s}", "", 1), `nftables.minSyncPeriod "1s" -> none`},
		{before + "nodePortAddresses: [primary]\n", `nodePortAddresses none -> ["primary"]`},
	} {
		if got := changes([]byte(before), []byte(tt.after)); got != tt.want {
			t.Errorf("%s\n got %s\nwant %s", tt.after, got, tt.want)
		}
	}
}
