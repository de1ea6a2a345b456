package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

func TestCheckVersion(t *testing.T) {
	const (
		skip    = "set KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK=true to skip this check"
		upgrade = " is older than 5.13; upgrade it, or " + skip
	)
	for release, want := range map[string]string{
		"5.13.0":         "",
		"5.13":           "",
		"5.14.0-503.el9": "",
		"6.1.0-28-amd64": "",
		"6.0":            "",
		"10.4.1":         "",
		"5.12.19":        "kernel 5.12.19" + upgrade,
		"5.4.0-generic":  "kernel 5.4.0-generic" + upgrade,
		"4.18.0":         "kernel 4.18.0" + upgrade,
		"linux":          `kernel release "linux" does not begin with a version; ` + skip,
		"":               `kernel release "" does not begin with a version; ` + skip,
	} {
		if err := checkVersion(release, "true"); err != nil {
			t.Errorf("%q with the variable set: got %v", release, err)
		}
		if err := checkVersion(release, ""); fmt.Sprint(err) != want && (err != nil || want != "") {
			t.Errorf("%q: got %v, want %q", release, err, want)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Setenv(skipKernelVersion, "true")
	if err := Check(); err != nil {
		t.Error(err)
	}
}

func TestWithoutPrivileges(t *testing.T) {
	t.Setenv(skipKernelVersion, "true")
	var err error
	nstest.Unprivileged(t, func() { err = Check() })
	const want = "no privileges for nftables: read generation: operation not permitted; " +
		"run as root with CAP_NET_ADMIN (in a pod: securityContext.capabilities.add: [NET_ADMIN])"
	if err == nil || err.Error() != want || !errors.Is(err, unix.EPERM) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestWithoutNFTables gets the errors of a kernel without
// nf_tables from requests for a protocol and a subsystem that no kernel has.
func TestWithoutNFTables(t *testing.T) {
	const want = "no nf_tables in the kernel: "
	const noProtocol = 31 // MAX_LINKS - 1, which no protocol uses
	_, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, noProtocol)
	if err = explainNFTables(err); !hasPrefix(err, want+"protocol not supported; load the module") {
		t.Errorf("without nfnetlink: got %v", err)
	}
	err = explainNFTables(queryNoSubsystem(t))
	if !hasPrefix(err, want+"invalid argument; load the module") {
		t.Errorf("nfnetlink without nf_tables: got %v", err)
	}
	if err = explainNFTables(unix.ENOMEM); !hasPrefix(err, "query nf_tables: cannot allocate memory; ") {
		t.Errorf("ENOMEM: got %v", err)
	}
}

func hasPrefix(err error, prefix string) bool {
	return err != nil && strings.HasPrefix(err.Error(), prefix)
}

// queryNoSubsystem sends a message to a subsystem that nfnetlink does not
// have, and returns the kernel's error.
func queryNoSubsystem(t *testing.T) error {
	t.Helper()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	request := make([]byte, 20) // struct nlmsghdr, struct nfgenmsg
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], unix.NFNL_SUBSYS_NONE<<8|0xff)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil || n < 20 {
		t.Fatalf("got an answer of %d bytes, %v", n, err)
	}
	return unix.Errno(-int32(binary.NativeEndian.Uint32(answer[16:])))
}
