package conntrack

import (
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

// Settings are limits and timeouts of connection tracking (nf_conntrack-sysctl.rst in the kernel's documentation). What is 0 or false
// stays as it is on the node. The names are those of kube-proxy's configuration, under conntrack.
type Settings struct {
	// MaxPerCore is how many flows there can be for each CPU, Min the least number for all. With MaxPerCore 0, Min means nothing.
	MaxPerCore, Min int
	// TCPEstablishedTimeout is for idle connections, TCPCloseWaitTimeout for those that one side has closed.
	TCPEstablishedTimeout, TCPCloseWaitTimeout time.Duration
	// TCPBeLiberal lets packets pass that are outside of the TCP window.
	TCPBeLiberal bool
	// UDPTimeout is for flows without an answer, UDPStreamTimeout for those with packets in both directions.
	UDPTimeout, UDPStreamTimeout time.Duration
}

// Changed is a value that Apply wrote.
type Changed struct {
	File     string
	From, To int
}

// Outcome is what Apply did.
type Outcome struct {
	Changed []Changed
	// Warning is what could not be done and only costs speed; nil if there is nothing.
	Warning error
}

// Files of the kernel. Those below proc/sys are of the network namespace of the calling thread; nf_conntrack_max can be written in the
// initial one only, and the size of the hash table is that of all.
const (
	sysctlDir    = "proc/sys/net/netfilter"
	hashSizeFile = "sys/module/nf_conntrack/parameters/hashsize"
	cpusFile     = "sys/devices/system/cpu/online"
)

// maxFlows limits MaxPerCore on machines with many CPUs, for memory's sake, as kube-proxy does.
const maxFlows = 1 << 20

// flowsPerBucket is how long the chains of the hash table get.
const flowsPerBucket = 4

// Apply writes the settings to the kernel's files below root, "/" but in tests. What is right already is not written, so that no
// privileges are needed where somebody else did this before. It ends with the first error, which is one line with a remedy.
func (s Settings) Apply(root string) (Outcome, error) {
	var out Outcome
	flows := s.flows(cpus(root))
	for _, v := range s.values(flows) {
		if v.to == 0 {
			continue
		}
		v.file = filepath.Join(root, sysctlDir, v.file)
		if err := out.set(v); err != nil {
			return out, err
		}
	}
	if flows > 0 {
		out.growHashTable(filepath.Join(root, hashSizeFile), flows/flowsPerBucket)
	}
	return out, nil
}

// flows returns how many flows there can be on so many CPUs, 0 if nothing is said about it.
func (s Settings) flows(cpus int) int {
	switch flows := s.MaxPerCore * cpus; {
	case flows <= 0:
		return 0
	case flows > maxFlows:
		return maxFlows
	default:
		return max(flows, s.Min)
	}
}

// value is what is to be in a file; leave says how the configuration leaves it alone.
type value struct {
	file  string
	to    int
	leave string
}

func (s Settings) values(flows int) []value {
	liberal := 0
	if s.TCPBeLiberal {
		liberal = 1
	}
	return []value{
		{"nf_conntrack_max", flows, "conntrack.maxPerCore: 0"},
		{"nf_conntrack_tcp_timeout_established", seconds(s.TCPEstablishedTimeout), "conntrack.tcpEstablishedTimeout: 0s"},
		{"nf_conntrack_tcp_timeout_close_wait", seconds(s.TCPCloseWaitTimeout), "conntrack.tcpCloseWaitTimeout: 0s"},
		{"nf_conntrack_tcp_be_liberal", liberal, "conntrack.tcpBeLiberal: false"},
		{"nf_conntrack_udp_timeout", seconds(s.UDPTimeout), "conntrack.udpTimeout: 0s"},
		{"nf_conntrack_udp_timeout_stream", seconds(s.UDPStreamTimeout), "conntrack.udpStreamTimeout: 0s"},
	}
}

// seconds returns whole seconds, at least one: a timeout of 0 would end every flow at once.
func seconds(d time.Duration) int {
	if d <= 0 {
		return 0
	}
	return max(1, int(d/time.Second))
}

// set writes a value unless it is there.
func (o *Outcome) set(v value) error {
	from, err := readInt(v.file)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; load the kernel module nf_conntrack, or set %s", err, v.leave)
	}
	if err != nil {
		return fmt.Errorf("%w; set %s", err, v.leave)
	}
	if from == v.to {
		return nil
	}
	if err := writeInt(v.file, v.to); err != nil {
		return fmt.Errorf("%w; it is %d: run kube-proxy --init-only in a privileged init container with the host's network, or set %s",
			err, from, v.leave)
	}
	o.Changed = append(o.Changed, Changed{v.file, from, v.to})
	return nil
}

// growHashTable makes the hash table as large as it should be for the number of flows. In one that is too small they are found all the
// same, if not as quickly.
func (o *Outcome) growHashTable(file string, size int) {
	from, err := readInt(file)
	if err == nil && from >= size {
		return
	}
	if err == nil {
		err = writeInt(file, size)
	}
	if err != nil {
		o.Warning = fmt.Errorf("hash table of connection tracking stays as it is: %w", err)
		return
	}
	o.Changed = append(o.Changed, Changed{file, from, size})
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
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err == nil {
		_, err = f.WriteString(strconv.Itoa(n))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("write %d: %w", n, err)
	}
	return nil
}

// cpus returns how many CPUs of the node work. The Go runtime knows only of those that this process may use, which can be fewer.
func cpus(root string) int {
	b, err := os.ReadFile(filepath.Join(root, cpusFile))
	if n, ok := countCPUs(strings.TrimSpace(string(b))); err == nil && ok {
		return n
	}
	return runtime.NumCPU()
}

// countCPUs counts what a list as 0-3,8 has.
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
