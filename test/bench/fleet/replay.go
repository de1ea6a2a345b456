package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/test/lab"
)

// replay sends the requests of a proxy and discards the answers.
type replay struct {
	requests []request
	version  string // from which the watches begin that follow a list
	counts   *counters

	client *http.Client // set by run
	host   *url.URL
}

// run is a runner. Requests with different paths are concurrent, as in
// reflectors.
func (r replay) run(ctx context.Context, config *rest.Config, node string, synced func()) error {
	config.DisableCompression = true // what arrives is not decompressed
	var errClient, errHost error
	r.client, errClient = rest.HTTPClientFor(config)
	r.host, errHost = url.Parse(config.Host)
	if err := errors.Join(errClient, errHost); err != nil {
		return err
	}
	byPath := map[string][]request{}
	for _, one := range r.requests {
		byPath[one.url.Path] = append(byPath[one.url.Path], one.adapted(node, r.version))
	}
	left := atomic.Int64{}
	left.Store(int64(len(byPath)))
	group, working := errgroup.WithContext(ctx)
	for _, requests := range byPath {
		group.Go(func() error {
			return r.hold(working, requests, func() {
				if left.Add(-1) == 0 {
					synced()
				}
			})
		})
	}
	if err := group.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// hold sends the requests. It calls synced when the last watch has begun, and
// has sent all objects if it does.
func (r replay) hold(ctx context.Context, requests []request, synced func()) error {
	for len(requests) > 0 && ctx.Err() == nil {
		again, err := r.send(ctx, requests[0], synced)
		switch {
		case err != nil || ctx.Err() != nil:
			return err
		case again == 0:
			requests = requests[1:]
		default:
			r.counts.refused.Add(1)
			lab.Sleep(ctx, again)
		}
	}
	return nil
}

// send sends a request and reads the answer. It returns the time after which
// the request is to be sent again, and 0 if it succeeded. It returns from a
// watch when that ends.
func (r replay) send(ctx context.Context, one request, synced func()) (again time.Duration, err error) {
	const backoff = 800 * time.Millisecond // of reflectors
	out := &http.Request{Method: http.MethodGet, URL: r.host.ResolveReference(&one.url), Header: one.header.Clone()}
	response, err := r.client.Do(out.WithContext(ctx))
	if err != nil {
		return backoff, nil
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= http.StatusInternalServerError:
		if s, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
			return time.Duration(s) * time.Second, nil
		}
		return backoff, nil
	case response.StatusCode != http.StatusOK:
		return 0, fmt.Errorf("%s: %s", out.URL, response.Status)
	case !one.watches():
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return backoff, nil
		}
		return 0, nil
	}
	to, from := io.Writer(io.Discard), io.Reader(response.Body)
	if one.sendsAll() {
		to = &initialEvents{complete: synced}
		if response.Header.Get("Content-Encoding") == "gzip" { // Kubernetes 1.37 and later
			if from, err = gzip.NewReader(from); err != nil {
				return backoff, nil
			}
		}
	} else {
		synced()
	}
	_, _ = io.Copy(to, from)
	if ctx.Err() == nil {
		r.counts.ended.Add(1)
	}
	return 0, nil
}

// endOfInitialEvents is the annotation of the bookmark after the last object of
// a watch that sends all objects.
const endOfInitialEvents = "k8s.io/initial-events-end"

// initialEvents looks for the end of the objects in the bytes of a watch.
type initialEvents struct {
	complete func() // nil after it was called
	last     []byte // in which the annotation may begin
}

// Write implements io.Writer.
func (e *initialEvents) Write(p []byte) (int, error) {
	if e.complete == nil {
		return len(p), nil
	}
	e.last = append(e.last, p...)
	if bytes.Contains(e.last, []byte(endOfInitialEvents)) {
		e.complete()
		e.complete = nil
	}
	e.last = append(e.last[:0], e.last[max(0, len(e.last)-len(endOfInitialEvents)):]...)
	return len(p), nil
}
