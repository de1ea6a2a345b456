package app

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"k8s.io/klog/v2"
)

// Files with the memory limit of the cgroup that this process is in, in bytes, as a container sees them: cgroup v2, and v1.
var memoryLimitFiles = [...]string{"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"}

// memoryShare is how much of the cgroup's limit the Go runtime may use, in percent. The rest is for the program itself and for the kernel's buffers
// that count as its own.
const memoryShare = 90

// heapGrowth is by how much the heap may grow before the garbage collector runs, in percent of what is in use. Most of what is in use is the state of the
// cluster, which stays, and little is done on a node agent's ordinary day: memory is dearer than the little CPU time that it takes.
const heapGrowth = 50

// setUpGarbageCollector sets how eager the garbage collector is, unless the variable GOGC does, and applies the memory limit.
func setUpGarbageCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
	applyMemoryLimit()
}

// applyMemoryLimit has the garbage collector work harder rather than let the kernel end this process, when memory gets short in its cgroup.
// The variable GOMEMLIMIT, if it is set, says otherwise.
func applyMemoryLimit() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit := cgroupMemoryLimit("/"); limit > 0 {
		debug.SetMemoryLimit(limit * memoryShare / 100)
		klog.V(2).InfoS("The garbage collector heeds the memory limit of the cgroup", "bytes", limit)
	}
}

// cgroupMemoryLimit returns the limit in bytes that stands below root, 0 if there is none.
func cgroupMemoryLimit(root string) int64 {
	const unlimited = 1 << 60 // cgroup v1 says it with a number near 2^63
	for _, file := range memoryLimitFiles {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is no number
		if err != nil || n <= 0 || n >= unlimited {
			return 0
		}
		return n
	}
	return 0
}
