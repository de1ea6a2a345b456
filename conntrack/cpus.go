package conntrack

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
)

const statFile = "proc/stat"

// cpus returns the number of online CPUs of the node: the lines cpu0, cpu1 and
// so on of /proc/stat. runtime.NumCPU is only the fallback: it counts the CPUs
// that this process may use, which can be fewer.
func cpus(root string) int {
	stat, err := os.ReadFile(filepath.Join(root, statFile))
	if n := bytes.Count(stat, []byte("\ncpu")); err == nil && n > 0 {
		return n
	}
	return runtime.NumCPU()
}
