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
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/must"
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
	must.NoError(t, err)
	// Other users can reach the directory, but must not be able to write to it.
	parent := t.TempDir()
	for dir := parent; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		must.NoError(t, os.Chmod(dir, 0o755))
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
	must.NoError(t, errors.Join(os.Chmod(server.dir, 0o711), os.Chmod(server.path(), 0o666)))
	asNobody(t, func() {
		conn, err := net.Dial("unix", server.path())
		must.NoError(t, err)
		defer conn.Close()
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: nftproxy\r\n\r\n", askName.Path)
		if n, err := conn.Read(make([]byte, 1)); err == nil || n > 0 {
			t.Error("another user got an answer")
		}
	})

	dir := filepath.Join(t.TempDir(), "nftproxy")
	must.NoError(t, errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, otherUser, otherUser)))
	for parent := filepath.Dir(dir); parent != "/tmp" && parent != "/"; parent = filepath.Dir(parent) {
		must.NoError(t, os.Chmod(parent, 0o755))
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
	must.NoError(t, <-done)
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
	must.NoError(t, os.MkdirAll(filepath.Join(root, outside, "nftproxy"), 0o700))
	dir, err := openDirectoryIn(root, filepath.Join(root, "run", "nftproxy"))
	must.NoError(t, err)
	dir.Close()
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
