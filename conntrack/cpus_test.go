package conntrack

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

func TestCPUs(t *testing.T) {
	for text, want := range map[string]int{
		"cpu  10 20 30 40\ncpu0 5 10 15 20\ncpu1 5 10 15 20\nintr 8 0 1\nctxt 9\n": 2,
		"cpu  10 20\ncpu0 5 10\ncpu2 3 4\ncpu15 1 2\nintr 8 0 1\n":                 3,
		"cpu  10 20\nintr 8 0 1\n": runtime.NumCPU(),
		"":                         runtime.NumCPU(),
	} {
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, statFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := cpus(root); got != want {
			t.Errorf("%q: got %d CPUs, want %d", text, got, want)
		}
	}
	if got := cpus(t.TempDir()); got != runtime.NumCPU() {
		t.Errorf("without the file: got %d CPUs, want %d", got, runtime.NumCPU())
	}
	// The kernel lists the same CPUs in another file.
	online, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		t.Skip(err)
	}
	if first, last, ok := strings.Cut(strings.TrimSpace(string(online)), "-"); ok && first == "0" {
		if got := cpus("/"); last != strconv.Itoa(got-1) {
			t.Errorf("got %d CPUs, want those in %s", got, online)
		}
	}
}
