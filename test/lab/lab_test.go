package lab_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/must"
)

func TestConcurrentLabs(t *testing.T) {
	const count = 4
	var labs [count]*lab.Lab
	var made sync.WaitGroup
	for i := range count {
		made.Go(func() {
			l, err := lab.New(fmt.Sprintf("lab-many-%d-%d", os.Getpid(), i))
			if err != nil {
				t.Error(err)
				return
			}
			must.Close(t, l)
			pod, err := l.Node2.AddPod(fmt.Sprintf("pod-%d", i))
			if err == nil {
				_, err = pod.ServeTCP(port)
			}
			if err != nil {
				t.Error(err)
			}
			labs[i] = l
		})
	}
	made.Wait()
	for i, l := range labs {
		if l == nil {
			continue
		}
		want := fmt.Sprintf("pod-%d", i)
		if got := probe(t, l.Client, "tcp", netip.MustParseAddrPort("10.244.2.2:8080")); got.Answer.Server != want {
			t.Errorf("lab %d: got %v, want an answer of %s", i, got, want)
		}
	}
}

// The lab is created in a namespace that no other test changes.
func TestClosedLabLeavesNothing(t *testing.T) {
	outside := labtest.New(t)
	must.NoError(t, outside.Client.Do(func() error { leaveNothing(t); return nil }))
}

func leaveNothing(t *testing.T) {
	before := stateOf(t)
	l := labtest.NewNamed(t, fmt.Sprint("lab-nothing-", os.Getpid()))
	pod := labtest.AddPodWith(t, l.Node1, lab.PodConfig{Name: "pod", Bridge: "cbr0"})
	labtest.Serve(t, port, pod.Namespace, l.Client)
	expect(t, lab.Answered, l.Client, "tcp", netip.AddrPortFrom(pod.IPv4, port))
	// Outside its namespaces, a lab has names and descriptors only.
	during := stateOf(t)
	if !slices.Equal(during.links, before.links) {
		t.Errorf("links outside the lab: got %v, want %v", during.links, before.links)
	}
	if slices.Equal(during.names, before.names) || slices.Equal(during.descriptors, before.descriptors) {
		t.Error("the test does not find the names or the descriptors of the lab")
	}
	for range 2 {
		must.NoError(t, l.Close())
	}
	after := stateOf(t)
	for what, pair := range map[string][2][]string{
		"links":       {before.links, after.links},
		"names":       {before.names, after.names},
		"mounts":      {before.mounts, after.mounts},
		"descriptors": {before.descriptors, after.descriptors},
		"threads":     {before.threads, after.threads},
	} {
		if !slices.Equal(pair[0], pair[1]) {
			t.Errorf("%s after Close: got %v, want %v", what, pair[1], pair[0])
		}
	}
	if err := l.Node1.Do(func() error { return nil }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Do in a closed lab: got %v, want os.ErrClosed", err)
	}
	if _, err := l.Node1.AddPod("late"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("AddPod in a closed lab: got %v, want os.ErrClosed", err)
	}
	if err := l.Node1.AddInterface("eth9"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("AddInterface in a closed lab: got %v, want os.ErrClosed", err)
	}
	if got := stateOf(t); !slices.Equal(got.links, before.links) {
		t.Errorf("links after use of a closed lab: got %v, want %v", got.links, before.links)
	}
}

// state is what a lab could change outside its namespaces.
type state struct {
	links       []string // in the namespace of the test
	names       []string // in /run/netns
	mounts      []string // of network namespaces
	descriptors []string // of network namespaces and sockets
	threads     []string // the namespaces of the threads
}

func stateOf(t *testing.T) state {
	t.Helper()
	var found state
	links, err := netlink.LinkList()
	must.NoError(t, err)
	for _, link := range links {
		found.links = append(found.links, link.Attrs().Name)
	}
	names, _ := os.ReadDir("/run/netns")
	for _, name := range names {
		if strings.HasPrefix(name.Name(), "lab") {
			found.names = append(found.names, name.Name())
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must.NoError(t, err)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, "/lab") {
			found.mounts = append(found.mounts, line)
		}
	}
	found.descriptors = linksTo(t, "/proc/self/fd/*", "net:[", "socket:[")
	slices.Sort(found.descriptors)
	found.threads = slices.Compact(linksTo(t, "/proc/self/task/*/ns/net", "net:["))
	return found
}

// linksTo returns the targets of the kinds among the symbolic links of a
// pattern.
func linksTo(t *testing.T, pattern string, kinds ...string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	must.NoError(t, err)
	var found []string
	for _, file := range files {
		target, err := os.Readlink(file)
		if err != nil {
			continue // closed meanwhile
		}
		if slices.ContainsFunc(kinds, func(kind string) bool { return strings.HasPrefix(target, kind) }) {
			found = append(found, target)
		}
	}
	return found
}

func TestNames(t *testing.T) {
	l := labtest.NewNamed(t, "lab-names")
	pod := labtest.AddPod(t, l.Node1, "pod")
	for _, ns := range []*lab.Namespace{l.Client, l.Node1.Namespace, l.Node2.Namespace, pod.Namespace} {
		name := "/run/netns/lab-names." + ns.Name
		if named, held := inode(t, name), inode(t, fmt.Sprintf("/proc/self/fd/%d", ns.Fd())); named != held {
			t.Errorf("namespace of %s: got %d, want %d", name, named, held)
		}
	}
	must.NoError(t, pod.Remove())
	if _, err := os.Stat("/run/netns/lab-names.pod"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("name of a removed pod: got %v, want os.ErrNotExist", err)
	}
	if _, err := lab.New("lab-names"); err == nil {
		t.Error("New with names that are in use succeeded, want an error")
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	info, err := os.Stat(path)
	must.NoError(t, err)
	return info.Sys().(*syscall.Stat_t).Ino
}

func TestInvalidName(t *testing.T) {
	for _, name := range []string{"a/b", "a.b", "A", strings.Repeat("a", 33)} {
		if l, err := lab.New(name); err == nil {
			t.Errorf("name %q was accepted, want an error", name)
			l.Close()
		}
	}
}

// killInLab creates a lab with the prefix and kills the process.
func killInLab(prefix string) {
	l, err := lab.New(prefix)
	if err == nil {
		_, err = l.Node1.AddPod("left-over")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

func TestNamesOfKilledLab(t *testing.T) {
	const prefix = "lab-killed"
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childTask+"=kill", childPrefix+"="+prefix)
	out, err := child.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !exit.Sys().(syscall.WaitStatus).Signaled() {
		t.Fatalf("the child was not killed in its lab: %v\n%s", err, bytes.TrimSpace(out))
	}
	leftOver := "/run/netns/" + prefix + ".left-over"
	if _, err := os.Stat(leftOver); err != nil {
		t.Fatalf("the killed process left no name: %v", err)
	}
	labtest.NewNamed(t, prefix)
	if _, err := os.Stat(leftOver); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("name of the killed lab: got %v, want os.ErrNotExist", err)
	}
}
