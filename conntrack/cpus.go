package conntrack

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

const cpusFile = "sys/devices/system/cpu/online"

// cpus returns the number of online CPUs of the node. runtime.NumCPU is only
// the fallback: it counts the CPUs that this process may use, which can be
// fewer.
func cpus(root string) int {
	b, err := os.ReadFile(filepath.Join(root, cpusFile))
	if n, ok := countCPUs(strings.TrimSpace(string(b))); err == nil && ok {
		return n
	}
	return runtime.NumCPU()
}

// countCPUs counts the CPUs in a list such as 0-3,8.
func countCPUs(list string) (n int, ok bool) {
	for _, part := range strings.Split(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, errTo := strconv.Atoi(last)
		if err != nil || errTo != nil || from < 0 || to < from {
			return 0, false
		}
		n += to - from + 1
	}
	return n, true
}
