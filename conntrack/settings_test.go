package conntrack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/script"
)

// The files of a script below node are the files of a kernel with four CPUs.
// The step apply applies settings to a copy of them, usage prints how full the
// table is, and cpus prints the number of CPUs.
func TestSettings(t *testing.T) {
	script.Run(t, script.Suite{Dir: "testdata/settings", Setup: func(*script.Env) (map[string]script.Command, error) {
		return script.Steps(map[string]any{
			"apply": applySettings, "usage": usage,
			"cpus": func(s *script.Script) int { return cpus(s.MkAbs("node")) },
		}), nil
	}})
}

// applySettings applies settings like min=1000 or udpTimeout=30s to a copy of
// the files, and returns the changed files.
func applySettings(s *script.Script, args ...string) (string, error) {
	settings, err := parseSettings(args)
	if err != nil {
		return "", err
	}
	root := s.MkAbs("copy")
	if err := errors.Join(os.RemoveAll(root), os.CopyFS(root, os.DirFS(s.MkAbs("node")))); err != nil {
		return "", err
	}
	done := settings.Apply(root)
	text := describeChanges(done, root)
	for _, c := range done.Changed {
		if got, err := readInt(c.File); got != c.To || err != nil {
			return text, fmt.Errorf("%s: got %d, %w, want %d", c.File, got, err, c.To)
		}
	}
	if again := settings.Apply(root); len(again.Changed) > 0 || len(again.Failed) != len(done.Failed) {
		return text, fmt.Errorf("second call: got %v, want no change", again)
	}
	if err := errors.Join(done.Failed...); err != nil {
		return text, errors.New(strings.ReplaceAll(err.Error(), root, ""))
	}
	return text, nil
}

func describeChanges(done Applied, root string) string {
	var all []string
	for _, c := range done.Changed {
		all = append(all, fmt.Sprintf("%s %d -> %d", filepath.Base(c.File), c.From, c.To))
	}
	if done.Warning != nil {
		all = append(all, strings.ReplaceAll(done.Warning.Error(), root, ""))
	}
	return strings.Join(all, ", ")
}

func parseSettings(args []string) (s Settings, err error) {
	ints := map[string]*int{"maxPerCore": &s.MaxPerCore, "min": &s.Min}
	durations := map[string]*time.Duration{
		"tcpEstablishedTimeout": &s.TCPEstablishedTimeout, "tcpCloseWaitTimeout": &s.TCPCloseWaitTimeout,
		"udpTimeout": &s.UDPTimeout, "udpStreamTimeout": &s.UDPStreamTimeout,
	}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch {
		case ints[name] != nil:
			*ints[name], err = strconv.Atoi(value)
		case durations[name] != nil:
			*durations[name], err = time.ParseDuration(value)
		case name == "tcpBeLiberal":
			s.TCPBeLiberal = value == "true"
		default:
			err = fmt.Errorf("unknown setting %s", name)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// usage returns how full the table is.
func usage(s *script.Script) (string, error) {
	u, err := ReadUsage(s.MkAbs("node"))
	if err != nil {
		return "", errors.New(strings.ReplaceAll(err.Error(), s.MkAbs("node"), ""))
	}
	return fmt.Sprintf("%d of %d, %g", u.Entries, u.Max, u.Full()), nil
}

// Apply writes the sysctls of a network namespace. nf_conntrack_max can be
// written in the initial namespace only.
func TestApplyInNamespace(t *testing.T) {
	const maxFile = "/" + sysctlDir + "/nf_conntrack_max"
	before, err := readInt(maxFile)
	if err != nil {
		t.Fatal(err)
	}
	ns := nstest.New(t)
	apply := func(s Settings) (done Applied) {
		ns.Do(func() { done = s.Apply("/") })
		return done
	}
	s := Settings{
		TCPEstablishedTimeout: 1001 * time.Second, TCPCloseWaitTimeout: 1002 * time.Second, TCPBeLiberal: true,
		UDPTimeout: 1003 * time.Second, UDPStreamTimeout: 1004 * time.Second,
	}
	done := apply(s)
	if len(done.Failed) > 0 || done.Warning != nil || len(done.Changed) != 5 {
		t.Fatalf("got %+v, want 5 changes", done)
	}
	for _, c := range done.Changed {
		if got, err := readInt(c.File); err != nil || got == c.To {
			t.Errorf("%s in the initial namespace: got %d, %v, want another value", c.File, got, err)
		}
	}
	if again := apply(s); len(again.Failed)+len(again.Changed) > 0 {
		t.Errorf("second call: got %+v, want no change", again)
	}
	if done := apply(Settings{MaxPerCore: 1, Min: before - 1}); len(done.Failed)+len(done.Changed) > 0 {
		t.Errorf("lower limit: got %+v, want no change", done)
	}

	done = apply(Settings{MaxPerCore: 1, Min: before + 1, UDPTimeout: 1005 * time.Second})
	if len(done.Changed) != 1 {
		t.Errorf("got changes %v, want 1 beside the limit that cannot be written", done.Changed)
	}
	err = errors.Join(done.Failed...)
	want := "; the current value is " + strconv.Itoa(before) + ": run kube-proxy --init-only in a privileged " +
		"init container with the host's network, or set conntrack.maxPerCore: 0"
	if err == nil || !errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), "\n") ||
		!strings.HasSuffix(err.Error(), want) || !strings.Contains(err.Error(), "open "+maxFile+": ") {
		t.Errorf("got %v, want one line that ends with %s", err, want)
	}
	if got, err := readInt(maxFile); got != before || err != nil {
		t.Errorf("got a limit of %d, %v, want %d", got, err, before)
	}
}

// Without a list of CPUs, their number is the number that the process may use.
func TestCPUs(t *testing.T) {
	if got := cpus(t.TempDir()); got != runtime.NumCPU() {
		t.Errorf("without the file: got %d CPUs, want %d", got, runtime.NumCPU())
	}
	// The kernel lists the same CPUs in another file.
	online, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		t.Fatal(err)
	}
	if first, last, ok := strings.Cut(strings.TrimSpace(string(online)), "-"); ok && first == "0" {
		if got := cpus("/"); last != strconv.Itoa(got-1) {
			t.Errorf("got %d CPUs, want those in %s", got, online)
		}
	}
	if full := (Usage{Entries: 1}).Full(); full != 0 {
		t.Errorf("without a limit: got fill %v, want 0", full)
	}
}
