package app

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// The kernels that the command is made for, as kube-proxy's nftables mode: 5.13 and later. The variable, which kube-proxy has too,
// makes it try others, if it has any value.
const (
	minKernelMajor, minKernelMinor = 5, 13
	skipKernelVersion              = "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK"
)

// checkKernel says why this node cannot be served, if so, and what to do about it, in one line. It changes nothing. It asks the kernel in
// the network namespace of the calling thread.
func checkKernel() error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("release of the kernel: %w; run kube-proxy where uname(2) is allowed", err)
	}
	if err := checkKernelVersion(unix.ByteSliceToString(name.Release[:]), os.Getenv(skipKernelVersion)); err != nil {
		return err
	}
	return explainNFTables(askNFTables())
}

// checkKernelVersion judges a release as uname(2) tells it, such as 6.1.0-28-amd64, unless skip has any value.
func checkKernelVersion(release, skip string) error {
	if skip != "" {
		return nil
	}
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("kernel release %q has no version in front; set %s=true to go on without", release, skipKernelVersion)
	}
	if major < minKernelMajor || major == minKernelMajor && minor < minKernelMinor {
		return fmt.Errorf("kernel %s is older than %d.%d; run a newer one on this node, or set %s=true to try with this one",
			release, minKernelMajor, minKernelMinor, skipKernelVersion)
	}
	return nil
}

// askNFTables asks nf_tables for something that takes the same privileges as changing it.
func askNFTables() error {
	conn, err := nft.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Generation()
	return err
}

// explainNFTables says what it means that nf_tables does not answer. A kernel without nfnetlink has no such socket, EPROTONOSUPPORT; nfnetlink
// without nf_tables answers EINVAL, after it tried to load the module (nfnetlink_rcv_msg).
func explainNFTables(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("no privileges for nftables: %w; run as root with CAP_NET_ADMIN (in a pod: securityContext.capabilities.add: [NET_ADMIN])", err)
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("no nf_tables in the kernel: %w; load the module (modprobe nf_tables), or run a kernel that has it (CONFIG_NF_TABLES)", err)
	}
	return fmt.Errorf("nf_tables does not answer: %w; see the log of the kernel", err)
}
