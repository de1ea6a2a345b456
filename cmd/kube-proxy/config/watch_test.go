package config

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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

// watching watches a file while steps change it, two looks after each. It returns the result, and whether the watch ended before its context.
func watching(t *testing.T, file string, steps ...func()) (err error, ended bool) {
	t.Helper()
	o, err := Parse([]string{"--config", file})
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

// The volume of a ConfigMap: the file is a link to ..data/FILE, and ..data is a link that the kubelet replaces.
func TestWatchConfigMap(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for name, content := range map[string]string{"..1": before, "..2": before, "..3": strings.Replace(before, "1s", "2s", 1)} {
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
	if err, ended := watching(t, path("config.conf"), func() {}, swap("..2"), remove); ended || err != nil {
		t.Errorf("the same content in another directory: %v", err)
	}
	err, ended := watching(t, path("config.conf"), swap("..3"))
	want := `content of the configuration file ` + path("config.conf") + ` was updated: nftables.minSyncPeriod "1s" -> "2s"; exiting, to be restarted with it`
	if !ended || err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// A file that is gone, or not read yet, is no change.
func TestWatchGoneFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.conf")
	write(t, file, before)
	remove := func() { os.Remove(file) }
	again := func() { write(t, file, before) }
	if err, ended := watching(t, file, remove, again, remove); ended || err != nil {
		t.Errorf("gone and the same again: %v", err)
	}
	again()
	if err, ended := watching(t, file, remove, func() { write(t, file, before+"oomScoreAdj: 5\n") }); !ended ||
		!strings.Contains(err.Error(), ": oomScoreAdj none -> 5; ") {
		t.Errorf("gone and another one: %v", err)
	}
}

// A change between the reading of the configuration and the watch is seen.
func TestWatchBeginsWithWhatWasRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.conf")
	write(t, file, before)
	if err, ended := watching(t, file, func() { write(t, file, strings.Replace(before, "1s", "3s", 1)) }); !ended || err == nil {
		t.Errorf("got %v", err)
	}
}

// What is seen once may be half of what is being written.
func TestWatchHalfWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.conf")
	write(t, file, before)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- watchContent(ctx, file, []byte(before), time.Second) }()
		time.Sleep(time.Second / 2)
		write(t, file, before[:20])
		time.Sleep(time.Second) // one look
		write(t, file, before)
		time.Sleep(5 * time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("got %v", err)
		}
	})
}

func TestWatchFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.conf")
	if err := WatchFile(t.Context(), file); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that is not there: %v", err)
	}
	write(t, file, before)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := WatchFile(ctx, file); err != nil {
		t.Errorf("ended: %v", err)
	}
	if err := new(Options).WatchConfigFile(ctx); err != nil {
		t.Errorf("no file: %v", err)
	}
}

func TestChanges(t *testing.T) {
	for _, tt := range []struct{ after, want string }{
		{before + "# comment\n", "no field has another value"},
		{strings.Replace(before, "nftables\n", "ipvs\n", 1) + "conntrack: {min: 1, maxPerCore: 0}\n", `conntrack.maxPerCore none -> 0, conntrack.min none -> 1, mode "nftables" -> "ipvs"`},
		{strings.Replace(before, "nftables: {minSyncPeriod: 1s}", "", 1), `nftables.minSyncPeriod "1s" -> none`},
		{strings.Replace(before, "{minSyncPeriod: 1s}", "5", 1), "it does not load: cannot be decoded: json: cannot unmarshal number into Go struct field KubeProxyConfiguration.nftables of type v1alpha1.KubeProxyNFTablesConfiguration"},
		{"", "it does not load: kind is missing: " + wantedType},
		{before + "nodePortAddresses: [primary]\n", `nodePortAddresses none -> ["primary"]`},
	} {
		if got := changes([]byte(before), []byte(tt.after)); got != tt.want {
			t.Errorf("%s\n got %s\nwant %s", tt.after, got, tt.want)
		}
	}
}
