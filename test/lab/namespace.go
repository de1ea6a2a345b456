package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace of the lab: the client, or what a Node or a
// Pod is made of.
type Namespace struct {
	// Name is unique in the lab: client, node1, a pod's name. Servers in the
	// namespace give it as theirs.
	Name string
	// IPv4 and IPv6 are the addresses that the namespace was made with.
	IPv4, IPv6 netip.Addr

	lab   *Lab
	file  *os.File // holds the namespace
	bound bool     // has a name in /run/netns

	life context.Context // ends with the namespace, and its processes with it
	end  context.CancelFunc

	mu      sync.Mutex
	closers map[io.Closer]struct{} // servers and captures that are open
}

// newNamespace makes a namespace with loopback up and the sysctls that all of
// them have.
func (l *Lab) newNamespace(name string) (*Namespace, error) {
	file, err := unshare()
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", name, err)
	}
	ns := &Namespace{Name: name, lab: l, file: file, closers: map[io.Closer]struct{}{}}
	ns.life, ns.end = context.WithCancel(context.Background())
	if err := l.remember(ns); err != nil {
		return nil, errors.Join(fmt.Errorf("namespace %s: %w", name, err), file.Close())
	}
	if l.names != nil {
		if err := l.names.bind(name, file); err != nil {
			l.setNameError(fmt.Errorf("name namespace %s: %w", name, err))
		} else {
			ns.bound = true
		}
	}
	if err := ns.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("namespace %s: %w", name, err), ns.close())
	}
	return ns, nil
}

func (n *Namespace) prepare() error {
	if err := n.SetSysctls(commonSysctls()); err != nil {
		return err
	}
	return n.setUp("lo")
}

// threadNamespace is the network namespace of the thread that opens it.
const threadNamespace = "/proc/thread-self/ns/net"

// unshare makes a network namespace and returns the file that keeps it alive.
func unshare() (*os.File, error) {
	var made *os.File
	err := visit(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare network namespace: %w", err)
		}
		var err error
		made, err = os.Open(threadNamespace)
		return err
	})
	return made, err
}

// Do calls f on an OS thread that is in the namespace. Goroutines that f starts
// are not in it; sockets that f opens stay in it for good. Calls may be nested.
// The error is f's, or os.ErrClosed for a namespace that is gone.
func (n *Namespace) Do(f func() error) error {
	return visit(func() error {
		if err := enter(n.file); err != nil {
			return fmt.Errorf("enter namespace %s: %w", n.Name, err)
		}
		return f()
	})
}

// within is Do for a function that returns something.
func within[T any](n *Namespace, f func() (T, error)) (value T, err error) {
	err = n.Do(func() error {
		value, err = f()
		return err
	})
	return value, err
}

// visit calls f, which may move its OS thread to another network namespace, and
// moves the thread back.
func visit(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := os.Open(threadNamespace)
	if err != nil {
		return fmt.Errorf("namespace of the thread: %w", err)
	}
	defer home.Close()
	defer func() {
		if err := enter(home); err != nil {
			// The caller must not go on in the wrong namespace.
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
		return os.ErrClosed // the only way to fail, with an error that is not exported
	}
	return setns
}

// Fd returns the descriptor of the namespace, for libraries that open sockets
// in a namespace given like that. It is valid until the namespace is closed.
func (n *Namespace) Fd() int { return int(n.file.Fd()) }

// Path returns a file of the namespace for `nsenter --net=PATH`: its name in
// /run/netns, or the descriptor of this process where it has no name.
func (n *Namespace) Path() string {
	if n.bound {
		return n.lab.names.path(n.Name)
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.Fd())
}

// Addrs returns the addresses that the namespace was made with, one a family.
func (n *Namespace) Addrs() []netip.Addr { return []netip.Addr{n.IPv4, n.IPv6} }

// addrLike returns the namespace's address of the same family.
func (n *Namespace) addrLike(other netip.Addr) netip.Addr {
	if other.Is4() {
		return n.IPv4
	}
	return n.IPv6
}

// own makes the namespace close something when it is closed itself.
func (n *Namespace) own(closer io.Closer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closers[closer] = struct{}{}
}

func (n *Namespace) disown(closer io.Closer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.closers, closer)
}

// close ends what runs in the namespace and lets go of it: the kernel removes
// it with its links. It is safe to call again.
func (n *Namespace) close() error {
	n.end()
	n.mu.Lock()
	closers := n.closers
	n.closers = map[io.Closer]struct{}{}
	n.mu.Unlock()

	var errs []error
	for closer := range closers {
		errs = append(errs, closer.Close())
	}
	if n.bound {
		errs = append(errs, n.lab.names.unbind(n.Name))
		n.bound = false
	}
	if err := n.file.Close(); !errors.Is(err, os.ErrClosed) {
		errs = append(errs, err)
	}
	n.lab.forget(n)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close namespace %s: %w", n.Name, err)
	}
	return nil
}
