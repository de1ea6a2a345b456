package nstest

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

// ResetPeakMemory frees unused memory, and makes the kernel measure the peak
// of the resident memory of the process from now on.
func ResetPeakMemory(t testing.TB) {
	t.Helper()
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// PeakMemory returns the peak of the resident memory of the process, in bytes.
func PeakMemory(t testing.TB) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	var kib int
	if _, err := fmt.Sscan(peak, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
