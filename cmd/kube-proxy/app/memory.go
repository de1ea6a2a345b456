package app

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"k8s.io/klog/v2"
)

// memoryLimitFiles hold the memory limit of this process's cgroup in bytes,
// as a container sees them: cgroup v2, then v1.
var memoryLimitFiles = [...]string{"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"}

// memoryShare is the share of the cgroup's limit that the Go runtime may use,
// in percent. The rest is for the binary and for kernel buffers charged to
// the cgroup.
const memoryShare = 90

// heapGrowth is the growth of the heap between two garbage collections, in
// percent of the live heap. It is below Go's default of 100: most of the live
// heap is the state of the cluster, and allocations are rare, so the lower
// value saves memory and costs little CPU time.
const heapGrowth = 20

// startHeapGrowth is the growth of the heap until the first sync. The heap
// grows from nothing to its final size then, and with a low value, most of the
// CPU time of a start would be spent in the garbage collector.
const startHeapGrowth = 200

// setUpMemory sets the heap growth of the start and the memory limit, unless
// the environment variables GOGC and GOMEMLIMIT set them. Without profiling, it
// turns the memory profile off, which takes memory and would not be served.
func setUpMemory(profiling bool) {
	if !profiling {
		runtime.MemProfileRate = 0
	}
	setHeapGrowth(startHeapGrowth)
	applyMemoryLimit()
}

func setHeapGrowth(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// applyMemoryLimit derives Go's memory limit from the limit of the cgroup, so
// that the garbage collector runs more often before the kernel kills this
// process.
func applyMemoryLimit() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit := cgroupMemoryLimit("/"); limit > 0 {
		debug.SetMemoryLimit(limit * memoryShare / 100)
		klog.V(2).InfoS("Set the memory limit of the garbage collector from the cgroup",
			"cgroupBytes", limit, "percent", memoryShare)
	}
}

// cgroupMemoryLimit returns the limit of the first limit file below root, 0
// if there is no limit.
func cgroupMemoryLimit(root string) int64 {
	const unlimited = 1 << 60 // cgroup v1 has a number near 2^63 for no limit
	for _, file := range memoryLimitFiles {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // fails for "max"
		if err != nil || n <= 0 || n >= unlimited {
			return 0
		}
		return n
	}
	return 0
}
