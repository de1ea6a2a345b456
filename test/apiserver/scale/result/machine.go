package result

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is what the figures were measured on.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory int64  `json:"memoryBytes"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	NFT    string `json:"nft"` // the program that kube-proxy runs
}

// String describes the machine in a line.
func (m Machine) String() string {
	return fmt.Sprintf("%d cores %s, %d GB, Linux %s, %s, nft %s", m.Cores, m.CPU, (m.Memory+1<<29)>>30, m.Kernel, m.Go, m.NFT)
}

// ThisMachine describes the machine that it runs on.
func ThisMachine() (Machine, error) {
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), CPU: runtime.GOARCH}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return m, err
	}
	m.Memory = int64(info.Totalram) * int64(info.Unit)
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return m, err
	}
	m.Kernel = unix.ByteSliceToString(name.Release[:])
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	out, err := exec.Command("nft", "--version").Output()
	if err != nil {
		return m, fmt.Errorf("nft --version: %w", err)
	}
	m.NFT = strings.TrimPrefix(strings.Fields(string(out) + " ?")[1], "v")
	return m, nil
}

// LoadAverage is how many tasks wanted to run in the last minute.
func LoadAverage() (float64, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	return strconv.ParseFloat(first, 64)
}
