package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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
	return (&finder{dir: runDir, proc: "/proc", namespace: namespace}).find(ctx)
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
