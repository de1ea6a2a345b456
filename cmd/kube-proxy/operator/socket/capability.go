package socket

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// canProgram reports whether a process has CAP_NET_ADMIN over its network
// namespace: in the user namespace that owns it or in an ancestor. Any process
// has all capabilities in a user namespace that it creates.
func canProgram(process string) bool {
	var own, found unix.Stat_t
	if !hasNetAdmin(process) || unix.Stat(process+"/ns/user", &own) != nil {
		return false
	}
	fd, err := unix.Open(process+"/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for request := uint(unix.NS_GET_USERNS); err == nil; request = unix.NS_GET_PARENT {
		child := fd
		fd, err = unix.IoctlRetInt(child, request) // EPERM without a parent
		unix.Close(child)
		if err == nil && unix.Fstat(fd, &found) == nil && found.Ino == own.Ino {
			unix.Close(fd)
			return true
		}
	}
	return false
}

// hasNetAdmin reports whether a process has CAP_NET_ADMIN in its own user
// namespace.
func hasNetAdmin(process string) bool {
	status, err := os.ReadFile(process + "/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if set, ok := strings.CutPrefix(line, "CapEff:"); ok {
			effective, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
			return err == nil && effective&(1<<unix.CAP_NET_ADMIN) != 0
		}
	}
	return false
}
