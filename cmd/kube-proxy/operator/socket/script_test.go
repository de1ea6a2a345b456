package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/script"
)

// TestScripts runs the scripts about the socket of a proxy, $SOCKET in the
// directory $DIR. These are their steps, besides exec and other standard ones:
//
//	listen [NAME]           starts a proxy with the objects a/x, b/x and b/y, or NAME/x
//	end                     stops the proxy that started first
//	try-listen [PARENT]     prints the error of a proxy whose directory is in PARENT
//	stale-socket FILE       makes a socket on which no process listens
//	hung-socket FILE        makes a socket that accepts connections and answers nothing
//	fail TEXT               makes the proxy answer with an error after its objects; the texts
//	                        not-found, deadline and broken are special
//	ask [FILE]              asks the proxy of a socket for its name
//	ask-objects [END]       asks for the objects with this end of their name
//	ask-future              asks what this version does not know
//	container [PROGRAM ARG...]   starts a proxy in a container of its own, with a directory of its own;
//	                        PROGRAM precedes it
//	end-container           ends it
//	find [another-namespace|another-process]   finds a proxy and asks it for its name
func TestScripts(t *testing.T) {
	setup := func(e *script.Env) (map[string]script.Command, error) {
		s := &story{t: e.T.(*testing.T), proxy: &fakeProxy{objects: []string{"a/x", "b/x", "b/y"}}}
		s.server = newTestServer(s.t, s.proxy)
		s.server.dir = filepath.Join(e.WorkDir, "nftproxy")
		e.Setenv("DIR", s.server.dir)
		e.Setenv("SOCKET", s.server.path())
		return script.Steps(map[string]any{
			"listen": s.listen, "end": s.stop, "try-listen": s.tryListen, "stale-socket": s.staleSocket,
			"hung-socket": s.hungSocket, "fail": s.fail, "ask": s.ask, "ask-objects": s.askObjects,
			"ask-future": s.askFuture, "container": s.startContainer, "find": s.find,
			"end-container": func() { s.container.Process.Kill(); s.container.Wait() },
		}), nil
	}
	script.Run(t, script.Suite{Patience: 10 * time.Second, Setup: setup})
}

type story struct {
	t      *testing.T
	proxy  *fakeProxy
	server *Server
	stops  []func()

	container *exec.Cmd
}

// TestMain makes the test program a proxy in a container if it has the name of
// one. Its only argument is the directory of the socket, whose parent is empty.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != proxyName {
		os.Exit(m.Run())
	}
	s, err := NewServer((&fakeProxy{}).pages())
	if err == nil {
		s.dir = os.Args[1]
		err = unix.Mount("none", filepath.Dir(s.dir), "tmpfs", 0, "")
	}
	if err != nil {
		panic(err)
	}
	s.Run(context.Background())
}

func (s *story) startContainer(sc *script.Script, wrapper ...string) error {
	program := filepath.Join(s.t.TempDir(), proxyName)
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, program)
	}
	args := append(wrapper, program, s.server.dir)
	s.container = exec.Command(args[0], args[1:]...)
	s.container.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err = errors.Join(err, s.container.Start()); err != nil {
		return err
	}
	s.t.Cleanup(func() { s.container.Process.Kill(); s.container.Wait() })
	inside := fmt.Sprintf("/proc/%d/root%s", s.container.Process.Pid, s.server.path())
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err = os.Stat(inside); err == nil {
			return nil
		}
	}
	return err
}

// find finds a proxy and asks it for its name.
func (s *story) find(other ...string) (string, error) {
	namespace := s.server.namespace
	if slices.Contains(other, "another-namespace") {
		namespace++
	}
	found, err := find(s.t.Context(), s.server.dir, namespace)
	if err != nil {
		return "", oneLine(err)
	}
	if slices.Contains(other, "another-process") {
		found.pid++
	}
	conn, err := found.connect(s.t.Context())
	if err != nil {
		return "", oneLine(err)
	}
	conn.Close()
	o, err := askName.AskOne(s.t.Context(), &Client{found: found}, struct{}{})
	if err != nil {
		return "", oneLine(err)
	}
	if found.path == s.server.path() {
		return o.Name, nil
	}
	return o.Name + " in the container", nil
}

func (s *story) listen(names ...string) {
	server := s.server
	if len(names) > 0 {
		server = newTestServer(s.t, &fakeProxy{objects: []string{names[0] + "/x"}})
		server.dir = s.server.dir
	}
	s.stops = append(s.stops, start(s.t, server))
}

func (s *story) stop() { s.stops[0]() }

func (s *story) tryListen(sc *script.Script, parents ...string) error {
	dir := s.server.dir
	if len(parents) > 0 {
		dir = filepath.Join(sc.MkAbs(parents[0]), "nftproxy")
	}
	l, err := listen(dir, s.server.namespace)
	if err == nil {
		l.Close()
	}
	return oneLine(err)
}

func (s *story) staleSocket(sc *script.Script, file string) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: sc.MkAbs(file)})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		return err
	}
	// A child of another test can have the descriptor until it executes.
	for {
		conn, err := net.Dial("unix", sc.MkAbs(file))
		if err != nil {
			return nil
		}
		conn.Close()
	}
}

func (s *story) hungSocket(sc *script.Script, file string) error {
	l, err := net.Listen("unix", sc.MkAbs(file))
	if err == nil {
		s.t.Cleanup(func() { l.Close() })
	}
	return err
}

func (s *story) fail(how string) {
	switch how {
	case "not-found":
		s.proxy.err = fmt.Errorf("c/z: %w", errNoObject)
	case "deadline":
		s.proxy.err = context.DeadlineExceeded
	case "broken":
		s.proxy.broken = true
	}
}

func (s *story) client(sc *script.Script, files ...string) *Client {
	if len(files) > 0 {
		return &Client{Path: sc.MkAbs(files[0])}
	}
	return &Client{Path: s.server.path()}
}

func (s *story) ask(sc *script.Script, files ...string) (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
	defer cancel()
	o, err := askName.AskOne(ctx, s.client(sc, files...), struct{}{})
	if err != nil {
		return "", oneLine(err)
	}
	return o.Name + "\n", nil
}

func (s *story) askObjects(sc *script.Script, end ...string) (string, error) {
	all, err := names(s.t, s.client(sc), strings.Join(end, ""))
	return strings.Join(append(all, ""), "\n"), oneLine(err)
}

func (s *story) askFuture(sc *script.Script) error {
	future := askName
	future.Path = "/v1/future"
	_, err := future.AskOne(s.t.Context(), s.client(sc), struct{}{})
	return oneLine(err)
}

// oneLine returns an error that is one line, and that names its kind.
func oneLine(err error) error {
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "\n"):
		return fmt.Errorf("not one line: %w", err)
	case errors.Is(err, ErrNoProxy):
		return fmt.Errorf("ErrNoProxy: %w", err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("DeadlineExceeded: %w", err)
	}
	return errors.New(strings.ReplaceAll(err.Error(), fmt.Sprint("process ", os.Getpid()), "process PID"))
}
