package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// namesFolder is where iproute2 finds named network namespaces.
const namesFolder = "/run/netns"

// names is the claim of one lab on the files PREFIX.* in namesFolder.
type names struct {
	prefix string
	claim  net.Listener
}

// claimNames reserves the prefix among running labs and removes the names
// that a killed lab left. The claim is an abstract socket because the kernel
// closes it however the process ends.
func claimNames(prefix string) (*names, error) {
	claim, err := net.Listen("unix", "@nftproxy-lab/"+prefix)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("another lab has the prefix %s", prefix)
	}
	if err != nil {
		return nil, fmt.Errorf("claim the prefix: %w", err)
	}
	n := &names{prefix: prefix, claim: claim}
	if err := n.sweep(); err != nil {
		return nil, errors.Join(err, n.release())
	}
	return n, nil
}

// sweep removes all files of the prefix.
func (n *names) sweep() error {
	entries, err := os.ReadDir(namesFolder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		if name, ours := strings.CutPrefix(entry.Name(), n.prefix+"."); ours {
			if err := n.unbind(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// release makes the prefix available to other labs.
func (n *names) release() error {
	if err := n.claim.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// full returns the name of the namespace of that name in namesFolder.
func (n *names) full(name string) string { return n.prefix + "." + name }

// unbind removes a name. It succeeds if the name does not exist, or if no
// namespace is mounted on it.
func (n *names) unbind(name string) error {
	file := filepath.Join(namesFolder, n.full(name))
	err := unix.Unmount(file, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", file, err)
	}
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
