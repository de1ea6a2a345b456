package table

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// The program has objects with timeouts of connection tracking, of which the
// kernel lets only one differ if all others are given, too (see
// ruleset.Timeouts). They follow the sysctls of the network namespace.

// timeoutsPeriod is the shortest interval at which the sysctls are read: less
// than the second between two checks, whose timer is not exact.
const timeoutsPeriod = 900 * time.Millisecond

// timeouts are the sysctls with timeouts of connection tracking.
type timeouts struct {
	dir    *os.Root            // of the network namespace of Setup
	files  map[string]*os.File // that were read
	read   time.Time
	last   ruleset.Timeouts
	failed bool // the last time
}

// sysctlNames has the names of the sysctls of states that have another name
// than nft's.
var sysctlNames = map[string]string{
	"retrans": "tcp_timeout_max_retrans", "unack": "tcp_timeout_unacknowledged",
	"unreplied": "udp_timeout", "replied": "udp_timeout_stream",
}

// open opens the directory of the sysctls of the network namespace of the
// calling thread. It belongs to this namespace also when it is read by other
// threads. If that fails, the objects keep what the kernel copies when it adds
// them.
func (s *timeouts) open() {
	var err error
	s.files = make(map[string]*os.File)
	if s.dir, err = os.OpenRoot("/proc/sys/net/netfilter"); err != nil {
		klog.ErrorS(err, "Failed to open the sysctls of connection tracking; rules will not follow their changes")
	}
}

func (s *timeouts) close() error {
	if s.dir == nil {
		return nil
	}
	errs := []error{s.dir.Close()}
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// update reads the sysctls unless they were read a moment ago. It reports
// whether they changed.
func (s *timeouts) update(now time.Time) (changed bool) {
	if s.dir == nil || now.Sub(s.read) < timeoutsPeriod {
		return false
	}
	s.read = now
	tcp, err := s.policy(cluster.TCP)
	udp, errUDP := s.policy(cluster.UDP)
	before := s.failed
	err = errors.Join(err, errUDP)
	if s.failed = err != nil; s.failed {
		if !before {
			klog.ErrorS(err, "Failed to read the timeouts of connection tracking; rules keep the last ones")
		}
		return false
	}
	next := ruleset.Timeouts{TCP: tcp, UDP: udp}
	changed, s.last = next != s.last, next
	return changed
}

// policy reads the timeouts of a protocol. One without a sysctl is 0.
func (s *timeouts) policy(p cluster.Protocol) (policy nft.TimeoutPolicy, err error) {
	for i, state := range nft.TimeoutStates(uint8(p)) {
		name := sysctlNames[state]
		if name == "" {
			name = p.String() + "_timeout_" + state
		}
		if policy[i], err = s.seconds("nf_conntrack_" + name); err != nil {
			return policy, err
		}
	}
	return policy, nil
}

// seconds reads a sysctl. Its file stays open: opening takes longer than
// reading.
func (s *timeouts) seconds(name string) (uint32, error) {
	f := s.files[name]
	if f == nil {
		var err error
		if f, err = s.dir.Open(name); errors.Is(err, fs.ErrNotExist) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		s.files[name] = f
	}
	var text [16]byte
	n, err := f.ReadAt(text[:], 0)
	if err != nil && err != io.EOF {
		delete(s.files, name) // the next time opens it again
		return 0, errors.Join(err, f.Close())
	}
	value, err := strconv.ParseUint(strings.TrimSpace(string(text[:n])), 10, 32)
	return uint32(value), err
}
