package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace of the lab, for the client, a node or a pod.
type Namespace struct {
	// Name is unique in the lab: client, node1, or the name of a pod. Servers
	// in the namespace answer with it.
	Name string
	// IPv4 and IPv6 are the addresses that the namespace was created with.
	IPv4, IPv6 netip.Addr

	lab   *Lab
	file  *os.File      // holds the namespace
	bound bool          // has a name in /run/netns
	flows atomic.Uint32 // of UDP and SCTP, begun without a source port

	life context.Context // of the namespace and its processes
	end  context.CancelFunc

	servers sync.WaitGroup
}

// NewNamespace creates a namespace outside of labs, which has only loopback.
func NewNamespace(name string) (*Namespace, error) { return new(Lab).newNamespace(name) }

// newNamespace creates a namespace with loopback and the common sysctls.
func (l *Lab) newNamespace(name string) (*Namespace, error) {
	file, err := l.create(name)
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", name, err)
	}
	ns := &Namespace{Name: name, lab: l, file: file, bound: l.name != ""}
	ns.life, ns.end = context.WithCancel(context.Background())
	if err := l.add(ns); err != nil {
		return nil, errors.Join(fmt.Errorf("namespace %s: %w", name, err), file.Close())
	}
	if err = errors.Join(ns.setCommonSysctls(), ns.setUp("lo")); err != nil {
		return nil, errors.Join(fmt.Errorf("namespace %s: %w", name, err), ns.Close())
	}
	return ns, nil
}

// create creates a network namespace and returns a file that holds it. The
// namespace has a name if the lab has names.
func (l *Lab) create(name string) (made *os.File, err error) {
	err = visit(func() error {
		add := netns.New
		if l.name != "" {
			add = func() (netns.NsHandle, error) { return netns.NewNamed(l.name + "." + name) }
		}
		handle, err := add()
		made = os.NewFile(uintptr(handle), name) // nil after an error
		return err
	})
	return made, err
}

// Do calls f on an OS thread in the namespace. Sockets that f opens stay in
// the namespace; goroutines that f starts are outside. Calls can be nested.
// Do returns the error of f, or os.ErrClosed after the namespace was closed.
func (n *Namespace) Do(f func() error) error {
	return visit(func() error {
		if err := enter(n.file); err != nil {
			return fmt.Errorf("enter namespace %s: %w", n.Name, err)
		}
		return f()
	})
}

// within is Do for a function that returns a value.
func within[T any](n *Namespace, f func() (T, error)) (value T, err error) {
	err = n.Do(func() error {
		value, err = f()
		return err
	})
	return value, err
}

// visit calls f, which may move the OS thread to another network namespace,
// and then moves the thread back.
func visit(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		return fmt.Errorf("namespace of the thread: %w", err)
	}
	defer home.Close()
	defer func() {
		if err := netns.Set(home); err != nil {
			// The caller must not continue in the wrong namespace.
			panic(fmt.Sprintf("return to the namespace of the thread: %v", err))
		}
	}()
	return f()
}

// enter moves the calling thread into the namespace that the file holds.
func enter(file *os.File) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var setns error
	if raw.Control(func(fd uintptr) { setns = unix.Setns(int(fd), unix.CLONE_NEWNET) }) != nil {
		return os.ErrClosed // the only cause; package os does not export the error
	}
	return setns
}

// Fd returns a descriptor of the namespace, for libraries that take one. It
// is valid until the namespace is closed.
func (n *Namespace) Fd() int { return int(n.file.Fd()) }

// Addrs returns IPv4 and IPv6.
func (n *Namespace) Addrs() []netip.Addr { return []netip.Addr{n.IPv4, n.IPv6} }

// AddrLike returns the namespace's address of the same family as other.
func (n *Namespace) AddrLike(other netip.Addr) netip.Addr {
	if other.Is4() {
		return n.IPv4
	}
	return n.IPv6
}

// Close ends the servers and processes of the namespace and closes it. The
// kernel removes it with its links. It can be called more than once.
func (n *Namespace) Close() error {
	n.end()
	n.servers.Wait()
	var errs []error
	if n.bound {
		errs = append(errs, unbind(n.lab.file(n.Name)))
		n.bound = false
	}
	if err := n.file.Close(); !errors.Is(err, os.ErrClosed) {
		errs = append(errs, err)
	}
	n.lab.remove(n)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close namespace %s: %w", n.Name, err)
	}
	return nil
}

// file returns the file of a name where iproute2 finds named namespaces.
func (l *Lab) file(name string) string { return filepath.Join("/run/netns", l.name+"."+name) }

// claimName reserves the name of the lab among running labs, and removes the
// files that a killed lab left. The claim is an abstract socket because the
// kernel closes it however the process ends.
func (l *Lab) claimName() (err error) {
	if l.name == "" {
		return nil
	}
	if !regexp.MustCompile(`^[a-z0-9-]{1,32}$`).MatchString(l.name) {
		return fmt.Errorf("name %q: want lower-case letters, digits and hyphens", l.name)
	}
	l.claim, err = net.Listen("unix", "@nftproxy-lab/"+l.name)
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("another lab has the name %s", l.name)
	}
	if err != nil {
		return fmt.Errorf("claim the name: %w", err)
	}
	files, err := filepath.Glob(l.file("*"))
	for _, file := range files {
		err = errors.Join(err, unbind(file))
	}
	return err
}

// unbind removes the file of a name. It succeeds if the file does not exist, or
// if no namespace is mounted on it.
func unbind(file string) error {
	errMounted := unix.Unmount(file, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // what is mounted cannot be removed
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w (unmount: %w)", err, errMounted)
	}
	return nil
}

//go:embed sysctl.conf
var sysctlConf string

// setCommonSysctls sets the sysctls of every namespace.
func (n *Namespace) setCommonSysctls() (err error) {
	for line := range strings.Lines(sysctlConf) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
			err = errors.Join(err, n.SetSysctl(name, value))
		}
	}
	return err
}

// SetSysctl sets a kernel parameter of the namespace. The name has dots:
// net.ipv4.ip_forward.
func (n *Namespace) SetSysctl(name, value string) error {
	file := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
	// The content of /proc/sys/net depends on the namespace of the thread.
	return n.change("sysctl", func() error { return os.WriteFile(file, []byte(value), 0o644) })
}
