package app

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func oomScore(t *testing.T) int32 {
	t.Helper()
	b, err := os.ReadFile(oomScoreFile)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}

func TestOOMScore(t *testing.T) {
	before := oomScore(t)
	defer applyOOMScore(&before)
	applyOOMScore(nil)
	if got := oomScore(t); got != before {
		t.Errorf("nil: got score %d, want %d", got, before)
	}
	for _, want := range []int32{before + 200, before + 100} { // a score below the first needs CAP_SYS_RESOURCE
		if applyOOMScore(&want); oomScore(t) != want {
			t.Errorf("got score %d, want %d", oomScore(t), want)
		}
	}
	err := writeOOMScore(oomScoreFile, 1001)
	if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "write 1001: write "+oomScoreFile) {
		t.Errorf("1001: got %v", err)
	}
	tooHigh := int32(1001)
	applyOOMScore(&tooHigh) // logs the error
	if got := oomScore(t); got != before+100 {
		t.Errorf("1001: got score %d, want %d", got, before+100)
	}
	if err := writeOOMScore(filepath.Join(t.TempDir(), "missing", "file"), 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: got %v", err)
	}
}
