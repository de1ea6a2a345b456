package app

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCheckKernelVersion(t *testing.T) {
	const tryAnyway = "or set KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK=true to try with this one"
	for release, want := range map[string]string{
		"5.13.0":         "",
		"5.13":           "",
		"5.14.0-503.el9": "",
		"6.1.0-28-amd64": "",
		"6.0":            "",
		"10.4.1":         "",
		"5.12.19":        "kernel 5.12.19 is older than 5.13; run a newer one on this node, " + tryAnyway,
		"5.4.0-generic":  "kernel 5.4.0-generic is older than 5.13; run a newer one on this node, " + tryAnyway,
		"4.18.0":         "kernel 4.18.0 is older than 5.13; run a newer one on this node, " + tryAnyway,
		"linux":          `kernel release "linux" has no version in front; set KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK=true to go on without`,
		"":               `kernel release "" has no version in front; set KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK=true to go on without`,
	} {
		if err := checkKernelVersion(release, "true"); err != nil {
			t.Errorf("%q: refused though it is not to be checked: %v", release, err)
		}
		if err := checkKernelVersion(release, ""); fmt.Sprint(err) != want && (err != nil || want != "") {
			t.Errorf("%q: %v, want %s", release, err, want)
		}
	}
}

// Here it works.
func TestCheckKernel(t *testing.T) {
	t.Setenv(skipKernelVersion, "true")
	if err := checkKernel(); err != nil {
		t.Error(err)
	}
}

// unprivileged runs f on a thread without CAP_NET_ADMIN, which ends with it.
func unprivileged(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var sets [2]unix.CapUserData
		err := unix.Capget(&header, &sets[0])
		if err == nil {
			sets[0].Effective &^= 1 << unix.CAP_NET_ADMIN
			err = unix.Capset(&header, &sets[0])
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("give up CAP_NET_ADMIN: %v", err)
	}
}

func TestCheckKernelWithoutPrivileges(t *testing.T) {
	t.Setenv(skipKernelVersion, "true")
	var err error
	unprivileged(t, func() { err = checkKernel() })
	const want = "no privileges for nftables: read generation: operation not permitted; " +
		"run as root with CAP_NET_ADMIN (in a pod: securityContext.capabilities.add: [NET_ADMIN])"
	if err == nil || err.Error() != want || !errors.Is(err, unix.EPERM) {
		t.Errorf("%v, want %s", err, want)
	}
}

// What a kernel says that lacks what is asked for, asked for something that no kernel has.
func TestCheckKernelWithoutNFTables(t *testing.T) {
	const want = "no nf_tables in the kernel: "
	const noProtocol = 31 // the largest number of a netlink protocol is 31, and none has it
	_, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, noProtocol)
	if err = explainNFTables(err); err == nil || !strings.HasPrefix(err.Error(), want+"protocol not supported; load the module") {
		t.Errorf("no nfnetlink: %v", err)
	}
	if err = explainNFTables(askNoSubsystem(t)); err == nil || !strings.HasPrefix(err.Error(), want+"invalid argument; load the module") {
		t.Errorf("nfnetlink without nf_tables: %v", err)
	}
	if err = explainNFTables(unix.ENOMEM); err == nil || !strings.HasPrefix(err.Error(), "nf_tables does not answer: cannot allocate memory; ") {
		t.Errorf("other errors: %v", err)
	}
}

// askNoSubsystem sends a message to a subsystem of nfnetlink that there is not, and returns the kernel's error.
func askNoSubsystem(t *testing.T) error {
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
		t.Fatalf("answer of %d bytes, %v", n, err)
	}
	return unix.Errno(-int32(binary.NativeEndian.Uint32(answer[16:])))
}
