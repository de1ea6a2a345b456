package manifest

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

// start runs a Source until the test ends. It waits for the first round.
func start(t *testing.T, dir string) *recorder {
	t.Helper()
	r := newRecorder()
	ctx, cancel := context.WithCancel(r.context(t))
	done := make(chan error, 1)
	source := newSource(t, dir, r)
	go func() { done <- source.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	r.await(t, "the first round", func() bool { return slices.Contains(r.calls, "Sync") })
	return r
}

func newSource(t *testing.T, dir string, h Handler) *Source {
	t.Helper()
	source, err := New(Config{Dir: dir, Handler: h})
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func TestNewRequiresAllFields(t *testing.T) {
	for _, config := range []Config{{}, {Dir: t.TempDir()}, {Handler: newRecorder()}} {
		if _, err := New(config); err == nil {
			t.Errorf("New(%+v): got no error", config)
		}
	}
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

func TestUnreadableDirectoryAtStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	for _, dir := range []string{filepath.Join(t.TempDir(), "none"), file} {
		r := newRecorder()
		err := newSource(t, dir, r).Run(r.context(t))
		if err == nil || !strings.Contains(err.Error(), "read manifests: ") || !strings.Contains(err.Error(), dir) {
			t.Errorf("got error %v, want one that names %s", err, dir)
		}
		expectLines(t, r.take(), nil)
	}
}

func TestChangesAreDetected(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "web.yaml")
	write(t, path, serviceAt("web", "10.0.0.1"))
	r := start(t, dir)
	r.awaitService(t, "web", "10.0.0.1")

	t.Log("overwrite")
	write(t, path, serviceAt("web", "10.0.0.2"))
	r.awaitService(t, "web", "10.0.0.2")

	t.Log("replace by rename")
	write(t, filepath.Join(dir, ".web.yaml.tmp"), serviceAt("web", "10.0.0.3"))
	rename(t, filepath.Join(dir, ".web.yaml.tmp"), path)
	r.awaitService(t, "web", "10.0.0.3")

	t.Log("replace by link")
	target := filepath.Join(t.TempDir(), "target")
	write(t, target, serviceAt("web", "10.0.0.4"))
	link(t, target, path)
	r.awaitService(t, "web", "10.0.0.4")

	t.Log("overwrite the link target")
	write(t, target, serviceAt("web", "10.0.0.50"))
	r.awaitService(t, "web", "10.0.0.50")

	t.Log("remove")
	removeAll(t, path)
	r.awaitDeletion(t, "web")

	t.Log("create")
	write(t, path, serviceAt("web", "10.0.0.6"))
	r.awaitService(t, "web", "10.0.0.6")
	if lines := r.takeLines(); len(lines) != 0 {
		t.Errorf("got log %q, want none", lines)
	}
}

func TestErrorAndRecovery(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "web.yaml")
	write(t, path, serviceAt("web", "10.0.0.1"))
	r := start(t, dir)
	r.take()
	write(t, path, serviceAt("web", "10.0.0"))
	r.awaitLine(t, "E Failed to load manifest, keeping its last valid version: "+
		"web.yaml: document 1: Service default/web: spec.clusterIPs[0]")
	expectLines(t, r.take(), nil)
	write(t, path, serviceAt("web", "10.0.0.2"))
	r.awaitLine(t, "I Manifest is valid again file=web.yaml")
	r.awaitService(t, "web", "10.0.0.2")
	expectLines(t, r.take(), []string{"= Service web 10.0.0.1 10.0.0.2", "Sync"})
}

// TestRenamesDeliverNothing renames a file while another changes, so that
// files are renamed during reads.
func TestRenamesDeliverNothing(t *testing.T) {
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
			t.Errorf("got call %q, want none for a renamed file", call)
		}
	}
}

// TestConfigMapMount changes files as the kubelet does: it replaces the link
// to their directory.
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
		t.Errorf("got log %q, want none", lines)
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

func TestDirectoryIsMoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	write(t, filepath.Join(mkdir(t, dir), "web.yaml"), serviceAt("web", "10.0.0.1"))
	r := start(t, dir)
	r.take()

	rename(t, dir, dir+".away")
	r.awaitLine(t, "E Failed to read manifest directory, keeping its last objects")
	expectLines(t, r.take(), nil)
	rename(t, dir+".away", dir)
	r.awaitLine(t, "I Manifest directory is readable again")
	expectLines(t, r.take(), nil)
	write(t, filepath.Join(dir, "web.yaml"), serviceAt("web", "10.0.0.2"))
	r.awaitService(t, "web", "10.0.0.2")
}

func TestDirectoryIsReplaced(t *testing.T) {
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
	// Root can read files of any mode. A dangling link is unreadable for it.
	rename(t, target, target+".away")
	r.awaitLine(t, "E Failed to load manifest, keeping its last valid version: web.yaml: ")
	rename(t, target+".away", target)
	r.awaitLine(t, "I Manifest is valid again file=web.yaml")
	expectLines(t, r.take(), nil)
}

// TestWatchStartsBeforeFirstRead checks that a change between the first read
// and the first poll is not lost.
func TestWatchStartsBeforeFirstRead(t *testing.T) {
	dir := t.TempDir()
	rec := newRecorder()
	r := newSource(t, dir, rec)
	r.logger = klog.FromContext(rec.context(t))
	defer r.watch.close()
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "web.yaml"), service)
	r.watch.awaitChange(t, "write after the first read")
}

// TestPolling runs without events.
func TestPolling(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "web.yaml")
	write(t, path, serviceAt("web", "10.0.0.1"))
	rec := newRecorder()
	r := newSource(t, dir, rec)
	r.logger = klog.FromContext(rec.context(t))
	r.watch = newWatch(filepath.Join(dir, "missing"))
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	if !r.unchanged() {
		t.Error("got a change of an unchanged directory")
	}
	write(t, path, serviceAt("web", "10.0.0.20"))
	if r.unchanged() {
		t.Error("got no change of a changed file")
	}
	rec.take()
	r.refresh()
	expectLines(t, rec.take(), []string{"= Service web 10.0.0.1 10.0.0.20", "Sync"})
	if !r.unchanged() {
		t.Error("got a change after the change was read")
	}
	removeAll(t, dir)
	if r.unchanged() {
		t.Error("got no change of a removed directory")
	}
	r.refresh()
	r.refresh()
	if !r.unchanged() {
		t.Error("got a change of a directory that is still removed")
	}
	expectLines(t, rec.take(), nil)
	lines := rec.takeLines()
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "E Failed to read manifest directory") {
		t.Errorf("got log %q, want one error of the removed directory", lines)
	}
}
