package manifest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

// start runs a Source until the test ends, and waits for the first round.
func start(t *testing.T, dir string) *recorder {
	t.Helper()
	r := newRecorder()
	ctx, cancel := context.WithCancel(r.context(t))
	done := make(chan error, 1)
	go func() { done <- New(Config{Dir: dir, Handler: r}).Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	r.await(t, "the first round", func() bool { return slices.Contains(r.calls, "Sync") })
	return r
}

func TestFirstRound(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), documents(service, endpointSlice, node, serviceCIDR))
	r := start(t, dir)
	expectLines(t, r.take(), []string{
		"ServiceCIDRs [10.96.0.0/16]", "+ Node worker", "+ EndpointSlice web-1", "+ Service web 10.96.0.1",
		"Node synced", "Services synced", "EndpointSlices synced", "Sync",
	})
}

func TestFirstRoundOfEmptyDirectory(t *testing.T) {
	r := start(t, t.TempDir())
	expectLines(t, r.take(), []string{"Node synced", "Services synced", "EndpointSlices synced", "Sync"})
}

func TestNoDirectoryAtStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	for _, dir := range []string{filepath.Join(t.TempDir(), "none"), file} {
		r := newRecorder()
		err := New(Config{Dir: dir, Handler: r}).Run(r.context(t))
		if err == nil || !strings.Contains(err.Error(), "read manifests: ") || !strings.Contains(err.Error(), dir) {
			t.Errorf("Run of %s returned %v", dir, err)
		}
		expectLines(t, r.take(), nil)
	}
}

func TestChangesAreSeen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "web.yaml")
	write(t, path, serviceAt("web", "10.0.0.1"))
	r := start(t, dir)
	r.awaitService(t, "web", "10.0.0.1")

	t.Log("written in place")
	write(t, path, serviceAt("web", "10.0.0.2"))
	r.awaitService(t, "web", "10.0.0.2")

	t.Log("renamed over")
	write(t, filepath.Join(dir, ".web.yaml.tmp"), serviceAt("web", "10.0.0.3"))
	rename(t, filepath.Join(dir, ".web.yaml.tmp"), path)
	r.awaitService(t, "web", "10.0.0.3")

	t.Log("linked over")
	target := filepath.Join(t.TempDir(), "target")
	write(t, target, serviceAt("web", "10.0.0.4"))
	link(t, target, path)
	r.awaitService(t, "web", "10.0.0.4")

	t.Log("written where the link leads")
	write(t, target, serviceAt("web", "10.0.0.50"))
	r.awaitService(t, "web", "10.0.0.50")

	t.Log("removed")
	removeAll(t, path)
	r.awaitGone(t, "web")

	t.Log("a new file")
	write(t, path, serviceAt("web", "10.0.0.6"))
	r.awaitService(t, "web", "10.0.0.6")
	if lines := r.takeLines(); len(lines) != 0 {
		t.Errorf("log is %q", lines)
	}
}

func TestErrorAndRecovery(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "web.yaml")
	write(t, path, serviceAt("web", "10.0.0.1"))
	r := start(t, dir)
	r.take()
	write(t, path, serviceAt("web", "10.0.0"))
	r.awaitLine(t, "E Cannot use manifest, its last good version stays in force: web.yaml: document 1: Service default/web: spec.clusterIPs[0]")
	expectLines(t, r.take(), nil)
	write(t, path, serviceAt("web", "10.0.0.2"))
	r.awaitLine(t, "I Manifest is good again file=web.yaml")
	r.awaitService(t, "web", "10.0.0.2")
	expectLines(t, r.take(), []string{"= Service web 10.0.0.1 10.0.0.2", "Sync"})
}

// TestRenamesDoNotFlap renames files while others change, so that reads fall in between.
func TestRenamesDoNotFlap(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "0.yaml"), documents(service, endpointSlice))
	counter := filepath.Join(dir, "counter.yaml")
	write(t, counter, serviceAt("counter", "10.0.0.0"))
	r := start(t, dir)
	r.take()
	const renames = 200
	for i := range renames {
		rename(t, filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), filepath.Join(dir, fmt.Sprintf("%d.yaml", i+1)))
		if i%50 == 49 {
			write(t, counter+".tmp", serviceAt("counter", fmt.Sprintf("10.0.0.%d", i)))
			rename(t, counter+".tmp", counter)
			r.awaitService(t, "counter", fmt.Sprintf("10.0.0.%d", i))
		}
	}
	for _, call := range r.take() {
		if strings.Contains(call, "web") {
			t.Errorf("renaming files delivered %q", call)
		}
	}
}

// TestConfigMapMount changes files the way the kubelet does: all at once, by a link to another directory.
func TestConfigMapMount(t *testing.T) {
	dir := t.TempDir()
	version := func(name, clusterIP string) {
		write(t, filepath.Join(mkdir(t, filepath.Join(dir, name)), "web.yaml"), serviceAt("web", clusterIP))
		link(t, name, filepath.Join(dir, "..data"))
	}
	version("..2026_01_01", "10.0.0.1")
	link(t, filepath.Join("..data", "web.yaml"), filepath.Join(dir, "web.yaml"))
	r := start(t, dir)
	r.awaitService(t, "web", "10.0.0.1")
	r.take()
	for i := 2; i < 5; i++ {
		version(fmt.Sprintf("..2026_01_0%d", i), fmt.Sprintf("10.0.0.%d", i))
		removeAll(t, filepath.Join(dir, fmt.Sprintf("..2026_01_0%d", i-1)))
		r.awaitService(t, "web", fmt.Sprintf("10.0.0.%d", i))
		expectLines(t, r.take(), []string{fmt.Sprintf("= Service web 10.0.0.%d 10.0.0.%d", i-1, i), "Sync"})
	}
	if lines := r.takeLines(); len(lines) != 0 {
		t.Errorf("log is %q", lines)
	}
}

func TestDirectoryIsLink(t *testing.T) {
	base := t.TempDir()
	first, second := mkdir(t, filepath.Join(base, "first")), mkdir(t, filepath.Join(base, "second"))
	write(t, filepath.Join(first, "web.yaml"), serviceAt("web", "10.0.0.1"))
	write(t, filepath.Join(second, "web.yaml"), serviceAt("web", "10.0.0.2"))
	dir := filepath.Join(base, "dir")
	link(t, first, dir)
	r := start(t, dir)
	r.awaitService(t, "web", "10.0.0.1")
	link(t, second, dir)
	r.awaitService(t, "web", "10.0.0.2")
	write(t, filepath.Join(second, "web.yaml"), serviceAt("web", "10.0.0.3"))
	r.awaitService(t, "web", "10.0.0.3")
}

func TestDirectoryVanishes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	write(t, filepath.Join(mkdir(t, dir), "web.yaml"), serviceAt("web", "10.0.0.1"))
	r := start(t, dir)
	r.take()

	rename(t, dir, dir+".away")
	r.awaitLine(t, "E Cannot read manifest directory, what it held last stays in force")
	expectLines(t, r.take(), nil)
	rename(t, dir+".away", dir)
	r.awaitLine(t, "I Manifest directory can be read again")
	expectLines(t, r.take(), nil)
	write(t, filepath.Join(dir, "web.yaml"), serviceAt("web", "10.0.0.2"))
	r.awaitService(t, "web", "10.0.0.2")
}

func TestDirectoryIsMadeAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	write(t, filepath.Join(mkdir(t, dir), "web.yaml"), serviceAt("web", "10.0.0.1"))
	r := start(t, dir)
	for i := 2; i < 5; i++ {
		r.take()
		removeAll(t, dir)
		write(t, filepath.Join(mkdir(t, dir), "web.yaml"), serviceAt("web", fmt.Sprintf("10.0.0.%d", i)))
		r.awaitService(t, "web", fmt.Sprintf("10.0.0.%d", i))
	}
	// The new directory is watched like the first one.
	write(t, filepath.Join(dir, "web.yaml"), serviceAt("web", "10.0.0.9"))
	r.awaitService(t, "web", "10.0.0.9")
}

func TestUnreadableFile(t *testing.T) {
	dir := t.TempDir()
	path, target := filepath.Join(dir, "web.yaml"), filepath.Join(t.TempDir(), "target")
	write(t, target, serviceAt("web", "10.0.0.1"))
	link(t, target, path)
	r := start(t, dir)
	r.take()
	// Root reads whatever its mode, so the link leads nowhere for a while.
	rename(t, target, target+".away")
	r.awaitLine(t, "E Cannot use manifest, its last good version stays in force: web.yaml: ")
	rename(t, target+".away", target)
	r.awaitLine(t, "I Manifest is good again file=web.yaml")
	expectLines(t, r.take(), nil)
}

// TestEventsComeFromTheFirstRoundOn checks that nothing is lost between the first read and the first look.
func TestEventsComeFromTheFirstRoundOn(t *testing.T) {
	dir := t.TempDir()
	rec := newRecorder()
	r := run{
		Source: New(Config{Dir: dir, Handler: rec}),
		logger: klog.FromContext(rec.context(t)),
		watch:  newWatch(dir),
		state:  newState(),
	}
	defer r.watch.close()
	if err := r.begin(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "web.yaml"), service)
	r.watch.awaitChange(t, "a write after the first read")
}

// TestPollingAlone runs without events: changes are seen all the same.
func TestPollingAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "web.yaml")
	write(t, path, serviceAt("web", "10.0.0.1"))
	rec := newRecorder()
	r := run{
		Source: New(Config{Dir: dir, Handler: rec}),
		logger: klog.FromContext(rec.context(t)),
		watch:  newWatch(filepath.Join(dir, "nothing to watch")),
		state:  newState(),
	}
	if err := r.begin(); err != nil {
		t.Fatal(err)
	}
	if !r.unchanged() {
		t.Error("nothing has changed")
	}
	write(t, path, serviceAt("web", "10.0.0.20"))
	if r.unchanged() {
		t.Error("the change is not seen")
	}
	rec.take()
	r.proceed()
	expectLines(t, rec.take(), []string{"= Service web 10.0.0.1 10.0.0.20", "Sync"})
	if !r.unchanged() {
		t.Error("nothing has changed since")
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if r.unchanged() {
		t.Error("that the directory is gone is not seen")
	}
	r.proceed()
	r.proceed()
	if !r.unchanged() {
		t.Error("the directory is still gone")
	}
	expectLines(t, rec.take(), nil)
	if lines := rec.takeLines(); len(lines) != 1 || !strings.HasPrefix(lines[0], "E Cannot read manifest directory") {
		t.Errorf("log is %q", lines)
	}
}
