package app

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
)

func TestGarbageCollector(t *testing.T) {
	const other = 77
	before := debug.SetGCPercent(other)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for _, tt := range []struct {
		gogc string
		want int
	}{{"80", other}, {"", startHeapGrowth}} {
		t.Setenv("GOGC", tt.gogc)
		t.Setenv("GOMEMLIMIT", "1TiB") // keeps the limit of this process
		setUpMemory(true)
		if got := debug.SetGCPercent(other); got != tt.want {
			t.Errorf("GOGC=%s: got %d, want %d", tt.gogc, got, tt.want)
		}
	}
}

// The memory profile is off unless profiles are served.
func TestMemoryProfile(t *testing.T) {
	rate := runtime.MemProfileRate
	t.Cleanup(func() { runtime.MemProfileRate = rate })
	t.Setenv("GOGC", "100")
	t.Setenv("GOMEMLIMIT", "1TiB") // keeps the limit of this process
	setUpMemory(true)
	if got := runtime.MemProfileRate; got != rate {
		t.Errorf("with profiling: got rate %d, want %d", got, rate)
	}
	setUpMemory(false)
	if got := runtime.MemProfileRate; got != 0 {
		t.Errorf("without profiling: got rate %d, want 0", got)
	}
}

func TestCgroupMemoryLimit(t *testing.T) {
	const v2, v1 = "sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"
	for _, tt := range []struct {
		file, text string
		want       int64
	}{
		{v2, "134217728\n", 134217728},
		{v2, "max\n", 0},
		{v1, "67108864\n", 67108864},
		{v1, "9223372036854771712\n", 0},
		{v2, "0\n", 0},
		{"sys/other", "1\n", 0},
	} {
		root := t.TempDir()
		file := filepath.Join(root, tt.file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(tt.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := cgroupMemoryLimit(root); got != tt.want {
			t.Errorf("%s %q: got %d, want %d", tt.file, tt.text, got, tt.want)
		}
	}
}
