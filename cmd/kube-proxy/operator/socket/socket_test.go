package socket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// otherUser is the user of processes that the server and client must not trust.
const otherUser = 65534

// fakeProxy has a name, and objects with names.
type fakeProxy struct {
	objects []string
	err     error // after all objects
	broken  bool  // the question for the name closes the connection
}

// object is an answer of a fakeProxy.
type object struct{ Name string }

// The questions to a fakeProxy.
var (
	askName = Question[struct{}, object]{
		Path:   "/v1/name",
		Format: func(struct{}) url.Values { return nil },
		Parse:  func(url.Values) (q struct{}, err error) { return q, nil },
	}
	askObjects = Question[string, object]{
		Path:   "/v1/objects",
		Format: func(end string) url.Values { return url.Values{"end": {end}} },
		Parse: func(v url.Values) (string, error) {
			if v.Get("end") == "invalid" {
				return "", errors.New("parameter end")
			}
			return v.Get("end"), nil
		},
	}
)

const errNoObject = NotFound("no such object")

func (f *fakeProxy) pages() []Page {
	name := func(_ context.Context, _ struct{}, yield func(*object) error) error {
		if f.broken {
			panic(http.ErrAbortHandler)
		}
		return yield(&object{"node1"})
	}
	objects := func(_ context.Context, end string, yield func(*object) error) error {
		for _, o := range f.objects {
			if !strings.HasSuffix(o, end) {
				continue
			}
			if err := yield(&object{o}); err != nil {
				return err
			}
		}
		return f.err
	}
	return []Page{askName.AnsweredBy(name), askObjects.AnsweredBy(objects)}
}

// newTestServer returns a server whose socket is in a new directory.
func newTestServer(t *testing.T, proxy *fakeProxy) *Server {
	t.Helper()
	s, err := NewServer(proxy.pages())
	if err != nil {
		t.Fatal(err)
	}
	// Other users can reach the directory, but must not be able to write to it.
	parent := t.TempDir()
	for dir := parent; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.dir = filepath.Join(parent, "nftproxy")
	s.retryDelay = time.Millisecond
	return s
}

// start runs the server until the test ends or stop is called.
func start(t *testing.T, s *Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	for range 1000 {
		if conn, err := (socket{path: s.path()}).connect(t.Context()); err == nil {
			conn.Close()
			return stop
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the server does not listen")
	return nil
}

func (s *Server) path() string { return filepath.Join(s.dir, socketName(s.namespace)) }

func (s *Server) find(ctx context.Context) (socket, error) { return find(ctx, s.dir, s.namespace) }

// names returns the objects of a query, and the error.
func names(t *testing.T, c *Client, end string) (all []string, err error) {
	t.Helper()
	for o, err := range askObjects.Ask(t.Context(), c, end) {
		if err != nil {
			return all, err
		}
		all = append(all, o.Name)
	}
	return all, nil
}

// askFor asks the proxy behind a socket for its name.
func askFor(t *testing.T, path string) (string, error) {
	t.Helper()
	o, err := askName.AskOne(t.Context(), &Client{Path: path}, struct{}{})
	if err != nil {
		return "", err
	}
	return o.Name, nil
}

func expectError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got error %v, want one line with %q", err, want)
	}
}

// The status code of an error is part of the protocol, and the name of its
// trailer.
func TestErrorCodes(t *testing.T) {
	proxy := &fakeProxy{objects: []string{"x"}}
	server := newTestServer(t, proxy)
	for err, want := range map[error]int{
		nil: http.StatusOK, errNoObject: http.StatusNotFound, context.DeadlineExceeded: http.StatusServiceUnavailable,
		io.ErrNoProgress: http.StatusInternalServerError,
	} {
		proxy.err = err
		got := httptest.NewRecorder()
		server.handler.ServeHTTP(got, httptest.NewRequest(http.MethodGet, "/v1/objects?end=y", nil))
		if got.Code != want || err != nil && got.Body.String() != fmt.Sprintf("{\"error\":%q}\n", err) {
			t.Errorf("error %v: got code %d, %s; want %d", err, got.Code, got.Body, want)
		}
		got = httptest.NewRecorder()
		server.handler.ServeHTTP(got, httptest.NewRequest(http.MethodGet, "/v1/objects", nil))
		trailer := got.Result().Trailer.Get("Error")
		if got.Body.String() != "{\"Name\":\"x\"}\n" || (trailer == "") != (err == nil) {
			t.Errorf("error %v after an object: got %s, trailer %q", err, got.Body, trailer)
		}
	}
}

// The server closes connections of other users, and the client asks no server
// of another user, even if both could open the socket.
func TestOtherUser(t *testing.T) {
	server := newTestServer(t, &fakeProxy{})
	start(t, server)
	if err := errors.Join(os.Chmod(server.dir, 0o711), os.Chmod(server.path(), 0o666)); err != nil {
		t.Fatal(err)
	}
	asNobody(t, func() {
		conn, err := net.Dial("unix", server.path())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: nftproxy\r\n\r\n", askName.Path)
		if n, err := conn.Read(make([]byte, 1)); err == nil || n > 0 {
			t.Error("another user got an answer")
		}
	})

	dir := filepath.Join(t.TempDir(), "nftproxy")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, otherUser, otherUser)); err != nil {
		t.Fatal(err)
	}
	for parent := filepath.Dir(dir); parent != "/tmp" && parent != "/"; parent = filepath.Dir(parent) {
		if err := os.Chmod(parent, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "fake.sock")
	var fake net.Listener
	asNobody(t, func() {
		var err error
		if fake, err = net.Listen("unix", path); err != nil {
			t.Fatal(err)
		}
	})
	defer fake.Close()
	if err := os.Chown(dir, 0, 0); err != nil { // so that only the peer is wrong
		t.Fatal(err)
	}
	_, err := askFor(t, path)
	expectError(t, err, "belongs to user 65534")
}

// asNobody calls f in a thread of another user.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		// The thread is not unlocked, so it ends with the goroutine.
		runtime.LockOSThread()
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, otherUser, otherUser, otherUser); errno != 0 {
			done <- errno
			return
		}
		f()
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// The client finds the socket of a proxy in a container, whose mount namespace
// has a directory of its own, and no socket of another network namespace.
func TestContainer(t *testing.T) {
	server := newTestServer(t, &fakeProxy{})
	if _, err := server.find(t.Context()); !errors.Is(err, ErrNoProxy) {
		t.Fatalf("without a proxy: got error %v, want ErrNoProxy", err)
	}
	proxy := startContainer(t, server.dir)
	s, err := server.find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("/proc/%d/root%s", proxy, server.path()); s.path != want || s.pid != int32(proxy) {
		t.Errorf("got socket %+v, want %s", s, want)
	}
	got, err := askName.AskOne(t.Context(), &Client{found: s}, struct{}{})
	if err != nil || got.Name != "node1" {
		t.Errorf("got name %+v, %v", got, err)
	}
	// Another process must not pass itself off as the proxy.
	s.pid++
	_, err = s.connect(t.Context())
	expectError(t, err, "is not the socket of a proxy")
	if _, err := find(t.Context(), server.dir, server.namespace+1); !errors.Is(err, ErrNoProxy) {
		t.Errorf("in another network namespace: got error %v, want ErrNoProxy", err)
	}
}

// The client asks no process that only has the name of a proxy: a container on
// the network of the node can run one, also with all capabilities in a user
// namespace of its own.
func TestContainerWithoutPrivileges(t *testing.T) {
	for _, wrapper := range [][]string{
		{"setpriv", "--bounding-set=-net_admin"},
		{"unshare", "--user", "--map-root-user", "--mount"},
	} {
		server := newTestServer(t, &fakeProxy{})
		startContainer(t, server.dir, wrapper...)
		if s, err := server.find(t.Context()); !errors.Is(err, ErrNoProxy) {
			t.Errorf("%s: got socket %+v, error %v, want ErrNoProxy", wrapper[0], s, err)
		}
	}
}

// A symbolic link of a container leads to a directory of the container, and not
// to one of the node.
func TestLinkInContainer(t *testing.T) {
	parent := t.TempDir()
	root, outside := filepath.Join(parent, "root"), filepath.Join(parent, "outside")
	if err := errors.Join(os.MkdirAll(outside+"/nftproxy", 0o700), os.Mkdir(root, 0o700),
		os.Symlink(outside, root+"/run"), os.Symlink("../outside", root+"/up")); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{"run", "up"} {
		if dir, err := openDirectoryIn(root, filepath.Join(root, link, "nftproxy")); err == nil {
			t.Errorf("link %s: got directory %s of the node", link, dir.Name())
			dir.Close()
		}
	}
	if err := os.MkdirAll(filepath.Join(root, outside, "nftproxy"), 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := openDirectoryIn(root, filepath.Join(root, "run", "nftproxy"))
	if err != nil {
		t.Fatal(err)
	}
	dir.Close()
}

// startContainer runs TestServeInContainer in a process with the name of a
// proxy, whose mount namespace has an empty directory in place of the parent of
// dir. It returns the id of the process. A wrapper is a command that starts it.
func startContainer(t *testing.T, dir string, wrapper ...string) (pid int) {
	t.Helper()
	program := filepath.Join(t.TempDir(), proxyName)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Link(self, program); err != nil {
		if err := os.Symlink(self, program); err != nil {
			t.Fatal(err)
		}
	}
	args := append(wrapper, program, "-test.run=^TestServeInContainer$")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "INSPECT_DIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatalf("the server in a container did not start: %v", err)
	}
	return cmd.Process.Pid
}

// TestServeInContainer is the process of startContainer.
func TestServeInContainer(t *testing.T) {
	dir := os.Getenv("INSPECT_DIR")
	if dir == "" {
		return // this is the test process
	}
	if err := unix.Mount("none", filepath.Dir(dir), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	server := newTestServer(t, &fakeProxy{})
	server.dir = dir
	start(t, server)
	fmt.Println("ready")
	select {}
}

// Proxies that start at the same time wait for each other.
func TestStartTogether(t *testing.T) {
	first := newTestServer(t, &fakeProxy{})
	var failed atomic.Int64
	var all sync.WaitGroup
	for i := range uint64(20) {
		all.Go(func() {
			l, err := listen(first.dir, first.namespace+i/2) // two of each namespace
			if err != nil {
				failed.Add(1)
				return
			}
			t.Cleanup(func() { l.Close() })
		})
	}
	if all.Wait(); failed.Load() != 10 {
		t.Errorf("got %d of 20 proxies that do not listen, want 10", failed.Load())
	}
}
