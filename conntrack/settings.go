package conntrack

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Settings are limits and timeouts of connection tracking
// (nf_conntrack-sysctl.rst in the kernel's documentation). The names are
// the names of kube-proxy's configuration, under conntrack. A setting that is 0
// or false is not written.
type Settings struct {
	// MaxPerCore is the maximum number of flows per CPU (nf_conntrack_max).
	// Min is the minimum of the resulting limit. It is ignored if MaxPerCore
	// is 0.
	MaxPerCore, Min int
	// TCPEstablishedTimeout is for idle connections, TCPCloseWaitTimeout for
	// connections that one side has closed.
	TCPEstablishedTimeout, TCPCloseWaitTimeout time.Duration
	// TCPBeLiberal also tracks packets outside of the TCP window.
	TCPBeLiberal bool
	// UDPTimeout is for flows without a reply, UDPStreamTimeout for flows
	// with packets in both directions.
	UDPTimeout, UDPStreamTimeout time.Duration
}

// Applied is the result of [Settings.Apply].
type Applied struct {
	Changed []ChangedFile
	// Failed are the settings that stay unset. Each error is one line that
	// names a remedy.
	Failed []error
	// Warning is nil, or the reason why the hash table could not grow. A
	// small hash table makes lookups slower.
	Warning error
}

// ChangedFile is a value that [Settings.Apply] wrote to a file.
type ChangedFile struct {
	File     string
	From, To int
}

// Files of the kernel. The sysctls belong to the network namespace of the
// calling thread, but nf_conntrack_max can be written in the initial
// namespace only. All namespaces share the hash table.
const (
	sysctlDir    = "proc/sys/net/netfilter"
	hashSizeFile = "sys/module/nf_conntrack/parameters/hashsize"
)

// maxFlows bounds the limit by MaxPerCore, to save memory on machines with
// many CPUs. kube-proxy has the same bound.
const maxFlows = 1 << 20

// flowsPerBucket is the mean length of the hash table's chains when the
// table is full.
const flowsPerBucket = 4

// Apply writes the settings to the kernel's files below root, which is "/"
// except in tests. It does not write values that are already set, so it
// needs no privileges if another process has written them. As kube-proxy
// v1.37, it never lowers the maximum number of flows.
func (s Settings) Apply(root string) (done Applied) {
	limit := s.flowLimit(cpus(root))
	for _, v := range s.sysctls(limit) {
		if v.value == 0 {
			continue
		}
		v.file = filepath.Join(root, sysctlDir, v.file)
		if err := done.write(v); err != nil {
			done.Failed = append(done.Failed, err)
			if v.atLeast {
				limit = 0 // the hash table need not grow
			}
		}
	}
	if limit > 0 {
		done.growHashTable(filepath.Join(root, hashSizeFile), limit/flowsPerBucket)
	}
	return done
}

// flowLimit returns the maximum number of flows for a number of CPUs, or 0 to
// keep the current limit.
func (s Settings) flowLimit(cpus int) int {
	switch limit := s.MaxPerCore * cpus; {
	case limit <= 0:
		return 0
	case limit > maxFlows:
		return maxFlows
	default:
		return max(limit, s.Min)
	}
}

// sysctl is a setting: its file, its value, and the configuration that
// disables it.
type sysctl struct {
	file     string
	value    int
	disabled string
	atLeast  bool // reports whether a larger value stays
}

func (s Settings) sysctls(flowLimit int) []sysctl {
	liberal := 0
	if s.TCPBeLiberal {
		liberal = 1
	}
	established, closeWait := seconds(s.TCPEstablishedTimeout), seconds(s.TCPCloseWaitTimeout)
	return []sysctl{
		{"nf_conntrack_max", flowLimit, "conntrack.maxPerCore: 0", true},
		{"nf_conntrack_tcp_timeout_established", established, "conntrack.tcpEstablishedTimeout: 0s", false},
		{"nf_conntrack_tcp_timeout_close_wait", closeWait, "conntrack.tcpCloseWaitTimeout: 0s", false},
		{"nf_conntrack_tcp_be_liberal", liberal, "conntrack.tcpBeLiberal: false", false},
		{"nf_conntrack_udp_timeout", seconds(s.UDPTimeout), "conntrack.udpTimeout: 0s", false},
		{"nf_conntrack_udp_timeout_stream", seconds(s.UDPStreamTimeout), "conntrack.udpStreamTimeout: 0s", false},
	}
}

// seconds returns whole seconds, at least one: a timeout of 0 would end every
// flow at once.
func seconds(d time.Duration) int {
	if d <= 0 {
		return 0
	}
	return max(1, int(d/time.Second))
}

// write writes a sysctl if its value differs, or is too small.
func (a *Applied) write(v sysctl) error {
	from, err := readInt(v.file)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; load the kernel module nf_conntrack, or set %s", err, v.disabled)
	}
	if err != nil {
		return fmt.Errorf("%w; set %s", err, v.disabled)
	}
	if from == v.value || v.atLeast && from > v.value {
		return nil
	}
	if err := writeInt(v.file, v.value); err != nil {
		const remedy = "run kube-proxy --init-only in a privileged init container with the host's network"
		return fmt.Errorf("%w; the current value is %d: %s, or set %s", err, from, remedy, v.disabled)
	}
	a.Changed = append(a.Changed, ChangedFile{v.file, from, v.value})
	return nil
}

// growHashTable sets the size of the hash table if it is smaller.
func (a *Applied) growHashTable(file string, size int) {
	from, err := readInt(file)
	if err == nil && from < size {
		if err = writeInt(file, size); err == nil {
			a.Changed = append(a.Changed, ChangedFile{file, from, size})
		}
	}
	if err != nil {
		a.Warning = fmt.Errorf("grow the hash table of connection tracking: %w", err)
	}
}

// Usage is how full the table of connection tracking is. When it is full, the
// kernel drops packets of new connections.
type Usage struct {
	Entries int `json:"entries"`
	Max     int `json:"max"`
}

// ReadUsage reads the usage in the network namespace of the calling thread from
// the kernel's files below root, which is "/" except in tests.
func ReadUsage(root string) (u Usage, err error) {
	if u.Entries, err = readInt(filepath.Join(root, sysctlDir, "nf_conntrack_count")); err == nil {
		u.Max, err = readInt(filepath.Join(root, sysctlDir, "nf_conntrack_max"))
	}
	return u, err
}

// Full returns the fill of the table, from 0 to 1.
func (u Usage) Full() float64 {
	if u.Max == 0 { // no limit
		return 0
	}
	return float64(u.Entries) / float64(u.Max)
}

func readInt(file string) (int, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", file, err)
	}
	return n, nil
}

func writeInt(file string, n int) error {
	if err := os.WriteFile(file, []byte(strconv.Itoa(n)), 0o644); err != nil {
		return fmt.Errorf("write %d: %w", n, err)
	}
	return nil
}

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
