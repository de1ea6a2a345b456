package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Client connects to a running proxy. Its zero value finds the proxy of the
// network namespace of the thread that asks first. An error of a question is
// one line for people, and wraps ErrNoProxy if no proxy listens. Only one
// goroutine can use it.
type Client struct {
	// Path is the path of the socket if it is not empty.
	Path  string
	found socket
}

// connect connects to the proxy, and finds it before unless it is known.
func (c *Client) connect(ctx context.Context) (conn *net.UnixConn, err error) {
	if c.found.path == "" {
		if c.found, err = c.find(ctx); err != nil {
			return nil, err
		}
	}
	if conn, err = c.found.connect(ctx); isAbsent(err) {
		err = fmt.Errorf("%w on socket %s", ErrNoProxy, c.found.path)
	}
	return conn, err
}

func (c *Client) find(ctx context.Context) (socket, error) {
	if c.Path != "" {
		return socket{path: c.Path}, nil
	}
	namespace, err := networkNamespace("/proc/thread-self")
	if err != nil {
		return socket{}, err
	}
	return find(ctx, runDir, namespace)
}

// get sends a query and returns a successful answer.
func (c *Client) get(ctx context.Context, query string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://nftproxy"+query, nil)
	if err != nil {
		return nil, err
	}
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	transport := http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		DisableKeepAlives: true, // the connection ends with the answer
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		conn.Close()
		return nil, c.failed(err)
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer response.Body.Close()
	var f failure
	if err := json.NewDecoder(response.Body).Decode(&f); err != nil || f.Error == "" {
		return nil, fmt.Errorf("the running proxy does not answer this question (%s): it has another version",
			response.Status)
	}
	if response.StatusCode == http.StatusNotFound {
		return nil, NotFound(f.Error)
	}
	return nil, errors.New(f.Error)
}

// failed returns the error of a query that got no answer, or a part of it.
func (c *Client) failed(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the proxy on socket %s did not answer in time: %w", c.found.path, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the proxy on socket %s closed the connection", c.found.path)
	}
	return err
}

// ErrNoProxy is returned if no proxy listens.
var ErrNoProxy = errors.New("no running proxy was found")

// socket is the path of a socket. If pid is not 0, only this process may listen
// on it, and root is the root directory of the process: symbolic links do not
// lead out of it.
type socket struct {
	path string
	pid  int32
	root string
}

// find returns a socket on which the proxy of a network namespace listens: the
// socket in dir, or the socket that a proxy in a container has there. It reads
// /proc, which can take long, only if no proxy listens in dir.
func find(ctx context.Context, dir string, namespace uint64) (socket, error) {
	path := filepath.Join(dir, socketName(namespace))
	var failed error
	sockets := []socket{{path: path}}
	for i := 0; i < len(sockets); i++ {
		conn, err := sockets[i].connect(ctx)
		if err == nil {
			return sockets[i], conn.Close()
		}
		if failed == nil && !isAbsent(err) {
			failed = err
		}
		if i == 0 {
			sockets = append(sockets, inContainers(ctx, path, namespace)...)
		}
	}
	if failed != nil {
		return socket{}, failed
	}
	return socket{}, fmt.Errorf("%w in this network namespace", ErrNoProxy)
}

// inContainers returns the sockets with a path in the mount namespaces of the
// processes that have the name, the network namespace and the privileges of a
// proxy, and none without /proc. Any program of a container can take the name,
// and give wrong answers. One with the privileges can change the rules
// themselves.
func inContainers(ctx context.Context, path string, namespace uint64) (sockets []socket) {
	pids, _ := proxiesIn(ctx, "/proc", namespace)
	for _, pid := range pids {
		process := fmt.Sprintf("/proc/%d", pid)
		if root := process + "/root"; canProgram(process) {
			sockets = append(sockets, socket{path: filepath.Join(root, path), pid: pid, root: root})
		}
	}
	return sockets
}

// connect connects to a socket, and checks that only root or this user can
// listen there.
func (s socket) connect(ctx context.Context) (*net.UnixConn, error) {
	path, name := filepath.Split(s.path)
	dir, err := openDirectoryIn(s.root, filepath.Clean(path))
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("no permission to ask the proxy, run as root: %w", err)
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := dir.check(); err != nil {
		return nil, err
	}
	if err := dir.checkSocket(name); err != nil {
		return nil, err
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", dir.address(name))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", s.path, errors.Unwrap(err))
	}
	if err := s.checkPeer(conn.(*net.UnixConn)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn.(*net.UnixConn), nil
}

func (s socket) checkPeer(conn *net.UnixConn) error {
	cred, err := checkPeer(conn)
	if err == nil && s.pid != 0 && cred.Pid != s.pid {
		err = fmt.Errorf("process %d listens, not process %d", cred.Pid, s.pid)
	}
	if err != nil {
		return fmt.Errorf("%s is not the socket of a proxy: %w", s.path, err)
	}
	return nil
}

// isAbsent reports whether an error of connect means that no process listens.
func isAbsent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED)
}
