package conntrack

import "testing"

func TestCountCPUs(t *testing.T) {
	const invalid = -1
	for list, want := range map[string]int{
		"0": 1, "0-3": 4, "0-1,4": 3, "0,2,4-7,9": 7,
		"": invalid, "x": invalid, "3-1": invalid, "0-": invalid, "-3": invalid, "0,,1": invalid,
	} {
		got, ok := countCPUs(list)
		if !ok {
			got = invalid
		}
		if got != want {
			t.Errorf("%q: got %d, want %d", list, got, want)
		}
	}
}

func TestCPUs(t *testing.T) {
	for name, root := range map[string]string{"this machine": "/", "without the file": t.TempDir()} {
		if got := cpus(root); got < 1 {
			t.Errorf("%s: got %d CPUs, want at least 1", name, got)
		}
	}
}
