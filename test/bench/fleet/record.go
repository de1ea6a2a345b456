package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/test/bench/stage"
)

// request is a request for objects, as a proxy sends it.
type request struct {
	url      url.URL     // of the path and the query only
	header   http.Header // Accept, Accept-Encoding and User-Agent, as far as it has them
	protocol string      // HTTP/2.0
}

// newRequest returns the request that the API server received.
func newRequest(in *http.Request) request {
	r := request{url: *in.URL, header: http.Header{}, protocol: in.Proto}
	for _, name := range []string{"Accept", acceptEncoding, "User-Agent"} {
		if values := in.Header[name]; values != nil {
			r.header[name] = values
		}
	}
	return r
}

const acceptEncoding = "Accept-Encoding"

// watches reports whether the request begins a watch.
func (r request) watches() bool { return r.url.Query().Has("watch") }

// sendsAll reports whether the watch sends all objects first (WatchList).
func (r request) sendsAll() bool { return r.url.Query().Get("sendInitialEvents") == "true" }

// nodeSelector is the start of the selector of a Node.
const nodeSelector = "metadata.name="

// adapted returns the request of another node at another version. A watch does
// not end before the benchmark.
func (r request) adapted(node, version string) request {
	query := r.url.Query()
	if strings.HasPrefix(query.Get("fieldSelector"), nodeSelector) {
		query.Set("fieldSelector", nodeSelector+node)
	}
	if v := query.Get("resourceVersion"); v != "" && v != "0" {
		query.Set("resourceVersion", version)
	}
	if query.Has("timeoutSeconds") {
		query.Set("timeoutSeconds", "7200")
	}
	r.url.RawQuery = query.Encode()
	return r
}

// summary describes what does not differ between two nodes.
func (r request) summary() string {
	r = r.adapted("NODE", "VERSION")
	values := r.url.Query()
	for _, random := range []string{"timeoutSeconds", "timeout"} {
		values.Del(random)
	}
	query, err := url.QueryUnescape(values.Encode())
	if err != nil {
		query = values.Encode()
	}
	return fmt.Sprintf("GET %s?%s, Accept: %s, Accept-Encoding: %s, %s",
		r.url.Path, query, r.header.Get("Accept"), r.header.Get(acceptEncoding), r.protocol)
}

// summaries returns the summaries of requests by path. Requests of the same
// path keep their order, others are concurrent.
func summaries(requests []request) (out []string) {
	byPath := slices.Clone(requests)
	slices.SortStableFunc(byPath, func(a, b request) int { return strings.Compare(a.url.Path, b.url.Path) })
	for _, r := range byPath {
		out = append(out, r.summary())
	}
	return out
}

// recorder is an HTTP proxy in front of the API server. It records requests for
// objects, and calls complete when each kind is watched.
type recorder struct {
	server   http.Handler
	complete func()

	mu       sync.Mutex
	requests []request
	watched  map[string]bool // by path
}

// kinds is the number of kinds of objects: Services, EndpointSlices, Nodes and
// ServiceCIDRs.
const kinds = 4

// ServeHTTP implements http.Handler.
func (r *recorder) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	if in.Method == http.MethodGet {
		r.add(newRequest(in))
	}
	r.server.ServeHTTP(w, in)
}

func (r *recorder) add(one request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, one)
	if one.watches() {
		r.watched[one.url.Path] = true
	}
	if len(r.watched) == kinds {
		r.complete()
	}
}

// recordPort is the port of recorders.
const recordPort = 7443

// record returns the requests that run sends to a URL until it watches all
// kinds. Then it ends the context of run.
func (f *fleet) record(ctx context.Context, run func(ctx context.Context, url string) error) (_ []request, err error) {
	config := f.restConfig()
	config.DisableCompression = true // of the recorder: it passes what the client asks for
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	to, err := url.Parse(f.Cluster.URL())
	if err != nil {
		return nil, err
	}
	forward := httputil.NewSingleHostReverseProxy(to)
	forward.Transport, forward.FlushInterval = transport, -1
	forward.ErrorLog = log.New(io.Discard, "", 0) // of watches that end with run
	running, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	r := &recorder{server: forward, complete: stop, watched: map[string]bool{}}
	server, err := f.Cluster.Serve(recordPort, r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()

	err = run(running, strings.Replace(f.Cluster.URL(), ":"+to.Port(), fmt.Sprintf(":%d", recordPort), 1))
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.watched) < kinds {
		err = errors.Join(fmt.Errorf("ended before it watched all kinds: %q", summaries(r.requests)), err)
	}
	return slices.Clone(r.requests), err
}

// recordProgram returns the requests of the program of a proxy.
func (f *fleet) recordProgram(ctx context.Context, proxy string) ([]request, error) {
	return f.record(ctx, func(ctx context.Context, url string) (err error) {
		node, err := f.NewNode(ctx, proxy, "--master="+url)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, node.Remove()) }()
		if err := node.Start(ctx); err != nil {
			return err
		}
		<-node.Process.Running.Done()
		if ctx.Err() == nil {
			return context.Cause(node.Process.Running)
		}
		return nil
	})
}

// requestsOf returns the requests that the program of a proxy sends. It returns
// an error if the informers of the proxy send different requests.
func (f *fleet) requestsOf(ctx context.Context, proxy string) ([]request, error) {
	program, err := f.recordProgram(ctx, proxy)
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", proxy, err)
	}
	own, err := f.record(ctx, func(ctx context.Context, url string) error {
		config := f.restConfig()
		config.Host = url
		return informersOf[proxy](ctx, config, memberName(0), func() {})
	})
	if err != nil {
		return nil, fmt.Errorf("record informers of %s: %w", proxy, err)
	}
	if want, got := summaries(program), summaries(own); !slices.Equal(want, got) {
		return nil, fmt.Errorf("%s sends\n%s\nits informers send\n%s",
			proxy, strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
	return program, nil
}

var informersOf = map[string]runner{stage.Product: runProduct, stage.Upstream: runUpstream}
