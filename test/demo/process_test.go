package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// demo is a tour under test, in a process of its own.
type demo struct {
	t              *testing.T
	name           string
	cmd            *exec.Cmd
	stdout, stderr *buffer
	ended          chan struct{}
}

// program returns the test program under another name.
func program(t *testing.T, name string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}

var tours atomic.Int32

// newName returns a name for the namespaces that nobody else uses.
func newName() string { return fmt.Sprintf("demo-test-%d-%d", os.Getpid(), tours.Add(1)) }

// start starts a tour of that name.
func start(t *testing.T, name, kubeProxy string, flags ...string) *demo {
	t.Helper()
	return startWith(t, name, kubeProxy, nil, flags...)
}

// startWith starts a tour that shows itself to a reader; nil: to the test.
func startWith(t *testing.T, name, kubeProxy string, stdout io.Writer, flags ...string) *demo {
	t.Helper()
	d := &demo{t: t, name: name, stdout: &buffer{}, stderr: &buffer{}, ended: make(chan struct{})}
	if stdout == nil {
		stdout = d.stdout
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	args := append([]string{"--name", name, "--kube-proxy", program(t, kubeProxy)}, flags...)
	d.cmd = exec.CommandContext(ctx, program(t, demoProgram), args...)
	d.cmd.Stdout, d.cmd.Stderr = stdout, d.stderr
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		d.cmd.Wait()
		close(d.ended)
	}()
	t.Cleanup(func() {
		d.cmd.Process.Signal(syscall.SIGTERM)
		<-d.ended
		cancel()
		if t.Failed() {
			t.Logf("standard output:\n%s\nstandard error:\n%s", d.stdout, d.stderr)
		}
	})
	return d
}

// await waits until something is so.
func (d *demo) await(what string, so func() bool) {
	d.t.Helper()
	for !so() {
		select {
		case <-d.ended:
			d.t.Fatalf("ended (%v) before %s", d.cmd.ProcessState, what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// awaitText waits until the tour shows a text.
func (d *demo) awaitText(text string) {
	d.t.Helper()
	d.await(fmt.Sprintf("%q was shown", text), func() bool { return strings.Contains(d.stdout.String(), text) })
}

// send sends a signal.
func (d *demo) send(s syscall.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		d.t.Fatal(err)
	}
}

// exitCode waits for the end.
func (d *demo) exitCode() int {
	<-d.ended
	return d.cmd.ProcessState.ExitCode()
}

// folder is where the tour keeps its files.
func (d *demo) folder() string { return "/run/nftproxy-" + d.name }

// leftovers returns what is left of the tour.
func (d *demo) leftovers() []string {
	d.t.Helper()
	left, err := filepath.Glob("/run/netns/" + d.name + ".*")
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := os.Stat(d.folder()); err == nil {
		left = append(left, d.folder())
	}
	temporary, err := filepath.Glob(filepath.Join(os.TempDir(), "*"+d.name+"*"))
	if err != nil {
		d.t.Fatal(err)
	}
	return append(append(left, temporary...), d.processes()...)
}

// processes returns the processes that the tour's folder is named to, which kube-proxy is.
func (d *demo) processes() []string {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		d.t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		// A process that is gone by now has nothing to read.
		data, _ := os.ReadFile(file)
		if line := string(bytes.ReplaceAll(data, []byte{0}, []byte{' '})); strings.Contains(line, d.folder()+"/") {
			found = append(found, line)
		}
	}
	return found
}

// expectNothingLeft checks that nothing is left.
func (d *demo) expectNothingLeft() {
	d.t.Helper()
	if left := d.leftovers(); len(left) > 0 {
		d.t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
