// Package kernel checks whether the kernel, and the privileges of this process,
// allow to program nftables.
package kernel

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// The minimum kernel version is as in kube-proxy's nftables mode. As in
// kube-proxy, any value of the environment variable skips the version check.
const (
	minKernelMajor, minKernelMinor = 5, 13
	skipKernelVersion              = "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK"
)

// Check returns an error of one line if the kernel, or the privileges
// of this process, do not allow to program nftables. It changes nothing.
func Check() error {
	if err := checkVersion(Release(), os.Getenv(skipKernelVersion)); err != nil {
		return err
	}
	return CheckNFTables()
}

// Release returns the release of the kernel, such as 6.1.0-28-amd64.
func Release() string {
	var name unix.Utsname
	unix.Uname(&name) // it fails only for an invalid pointer
	return unix.ByteSliceToString(name.Release[:])
}

// CheckNFTables returns an error of one line if this process cannot program
// nftables. It changes nothing: the request needs the same privileges as a
// change.
func CheckNFTables() error {
	conn, err := nft.Open()
	if err == nil {
		defer conn.Close()
		_, err = conn.Generation()
	}
	return explainNFTables(err)
}

// checkVersion checks a release of uname(2), such as 6.1.0-28-amd64. It
// accepts every release if skip is not empty.
func checkVersion(release, skip string) error {
	if skip != "" {
		return nil
	}
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("kernel release %q does not begin with a version; set %s=true to skip this check",
			release, skipKernelVersion)
	}
	if major < minKernelMajor || major == minKernelMajor && minor < minKernelMinor {
		return fmt.Errorf("kernel %s is older than %d.%d; upgrade it, or set %s=true to skip this check",
			release, minKernelMajor, minKernelMinor, skipKernelVersion)
	}
	return nil
}

// explainNFTables adds the cause and the remedy to an error of nf_tables.
//
// A kernel without nfnetlink refuses the socket with EPROTONOSUPPORT.
// nfnetlink without nf_tables tries to load the module and then answers
// EINVAL (nfnetlink_rcv_msg).
func explainNFTables(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("no privileges for nftables: %w; run as root with CAP_NET_ADMIN "+
			"(in a pod: securityContext.capabilities.add: [NET_ADMIN])", err)
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT),
		errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("no nf_tables in the kernel: %w; load the module (modprobe nf_tables) "+
			"or use a kernel with CONFIG_NF_TABLES", err)
	}
	return fmt.Errorf("query nf_tables: %w; see the kernel log", err)
}
