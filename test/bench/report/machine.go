package report

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Machine describes where the figures were measured.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory uint64 `json:"memoryBytes"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	NFT    string `json:"nft,omitempty"` // version of the program that kube-proxy runs
	// Load is the load average of one minute when the benchmark began.
	Load float64 `json:"loadAverage"`
}

// String describes the machine in a line.
func (m Machine) String() string {
	return fmt.Sprintf("%d cores %s, %d GB, Linux %s, %s, nft %s, load average %.1f",
		m.Cores, m.CPU, (m.Memory+1<<29)>>30, m.Kernel, m.Go, m.NFT, m.Load)
}

// thisMachine describes the machine that it runs on.
func thisMachine() (Machine, error) {
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), CPU: runtime.GOARCH}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return m, err
	}
	memory, errMemory := proc.Meminfo()
	load, errLoad := LoadAverage()
	var name unix.Utsname
	if err := errors.Join(errMemory, errLoad, unix.Uname(&name)); err != nil {
		return m, err
	}
	m.Memory, m.Load, m.Kernel = *memory.MemTotalBytes, load, unix.ByteSliceToString(name.Release[:])
	if cpus, err := proc.CPUInfo(); err == nil && len(cpus) > 0 && cpus[0].ModelName != "" {
		m.CPU = cpus[0].ModelName
	}
	if out, err := exec.Command("nft", "--version").Output(); err == nil {
		m.NFT = strings.TrimPrefix(strings.Fields(string(out) + " ?")[1], "v")
	}
	return m, nil
}

// LoadAverage returns the load average of the last minute.
func LoadAverage() (load float64, err error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscan(string(text), &load)
	}
	return load, err
}
