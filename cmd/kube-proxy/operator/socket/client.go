package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// Client asks a running proxy. An error is one line for people.
type Client struct {
	socket socket
	http   *http.Client
}

// Dial finds the proxy of the network namespace of the calling thread. If path
// is not empty, it is the path of the socket. The error is ErrNoProxy if no
// proxy listens.
func Dial(ctx context.Context, path string) (*Client, error) {
	if path != "" {
		return dial(ctx, socket{path: path})
	}
	namespace, err := networkNamespace("/proc/thread-self")
	if err != nil {
		return nil, err
	}
	f := finder{dir: runDir, proc: "/proc", namespace: namespace}
	s, err := f.find(ctx)
	if err != nil {
		return nil, err
	}
	return newClient(s), nil
}

// dial connects to a socket to find out whether a proxy listens.
func dial(ctx context.Context, s socket) (*Client, error) {
	conn, err := s.connect(ctx)
	switch {
	case err == nil:
		return newClient(s), conn.Close()
	case isAbsent(err):
		return nil, fmt.Errorf("%w on socket %s", ErrNoProxy, s.path)
	}
	return nil, err
}

func newClient(s socket) *Client {
	return &Client{socket: s, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.connect(ctx) },
	}}}
}

// Close closes the connections to the proxy.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status returns the status of the proxy.
func (c *Client) Status(ctx context.Context) (*answer.Status, error) {
	return one(c, ask[answer.Status](ctx, c, pathStatus, nil))
}

// Services returns the Services of a query, sorted by name. The error is
// answer.ErrNoService if the query names a Service that the proxy does not
// serve.
func (c *Client) Services(ctx context.Context, q cluster.ServiceName) iter.Seq2[*table.ServiceView, error] {
	return ask[table.ServiceView](ctx, c, pathServices, url.Values{"namespace": {q.Namespace}, "name": {q.Name}})
}

// Diff returns the steps of a comparison of the tables with the kernel.
func (c *Client) Diff(ctx context.Context, after string) iter.Seq2[*table.DiffStep, error] {
	return ask[table.DiffStep](ctx, c, pathDiff, url.Values{"after": {after}})
}

// Explain walks a packet through the table that the proxy wants.
func (c *Client) Explain(ctx context.Context, q explain.Query) (*explain.Desired, error) {
	return one(c, ask[explain.Desired](ctx, c, pathExplain, formatPacket(&q)))
}

// one returns the only object of an answer.
func one[T any](c *Client, answer iter.Seq2[*T, error]) (*T, error) {
	for v, err := range answer {
		return v, err
	}
	return nil, c.failed(io.ErrUnexpectedEOF)
}

// ask sends a query and returns the values of the answer while they arrive. An
// error is the last one.
func ask[T any](ctx context.Context, c *Client, path string, query url.Values) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		response, err := c.get(ctx, path+"?"+query.Encode())
		if err != nil {
			yield(nil, err)
			return
		}
		defer response.Body.Close()
		for decoder := json.NewDecoder(response.Body); ; {
			v := new(T)
			err := decoder.Decode(v)
			switch {
			case err == io.EOF:
				if text := response.Trailer.Get(errorTrailer); text != "" {
					yield(nil, errors.New(text))
				}
				return
			case err != nil:
				yield(nil, c.failed(err))
				return
			case !yield(v, nil):
				return
			}
		}
	}
}

// get sends a query and returns a successful answer.
func (c *Client) get(ctx context.Context, query string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://nftproxy"+query, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.failed(err)
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer response.Body.Close()
	return nil, c.refused(response)
}

// refused returns the error of an answer.
func (c *Client) refused(response *http.Response) error {
	var f failure
	if err := json.NewDecoder(response.Body).Decode(&f); err != nil || f.Error == "" {
		return fmt.Errorf("the running proxy does not answer this question (%s): it has another version",
			response.Status)
	}
	if response.StatusCode == http.StatusNotFound {
		return &noServiceError{f.Error}
	}
	return errors.New(f.Error)
}

// noServiceError is an answer.ErrNoService of the server.
type noServiceError struct{ text string }

func (e *noServiceError) Error() string { return e.text }

func (e *noServiceError) Unwrap() error { return answer.ErrNoService }

// failed returns the error of a query that got no answer, or a part of it.
func (c *Client) failed(err error) error {
	if sent, ok := errors.AsType[*url.Error](err); ok {
		err = sent.Err
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the proxy on socket %s did not answer in time: %w", c.socket.path, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the proxy on socket %s closed the connection", c.socket.path)
	}
	return err
}
