package localhost

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"
)

// Sizes of BenchmarkRegistry: a transfer of 1 GB in blobs.
const (
	blobs    = 64
	blobSize = 16 << 20
	workers  = 8
)

// registry answers as a container registry does: GET returns a blob, PUT
// takes one.
func registry(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		io.Copy(io.Discard, r.Body)
		return
	}
	w.Header().Set("Content-Length", fmt.Sprint(blobSize))
	io.Copy(w, io.LimitReader(zeros{}, blobSize))
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// BenchmarkRegistry transfers 1 GB with 8 connections, as downloads of blobs
// and as chunked uploads, directly and through a NodePort on localhost.
func BenchmarkRegistry(b *testing.B) {
	f := newFixture(b, "127.0.0.1", nil)
	l, err := f.Server.listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(registry)}
	go server.Serve(l)
	b.Cleanup(func() { server.Close() })
	e := &endpoint{at: netip.MustParseAddrPort(l.Addr().String())}
	f.serve(0, e)
	nodePort := netip.AddrPortFrom(f.config.Addr, testPort)
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		for name, to := range map[string]netip.AddrPort{"direct": e.at, "localhost": nodePort} {
			b.Run(method+"/"+name, func(b *testing.B) {
				b.SetBytes(blobs * blobSize)
				for b.Loop() {
					f.transfer(b, method, to)
				}
			})
		}
	}
}

// transfer transfers all blobs.
func (f *fixture) transfer(b *testing.B, method string, to netip.AddrPort) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return f.Server.dial(ctx, to) }
	todo, errs := make(chan struct{}, blobs), make(chan error, workers)
	for range blobs {
		todo <- struct{}{}
	}
	close(todo)
	for range workers {
		go func() { errs <- transferBlobs(&http.Transport{DialContext: dial}, method, to, todo) }()
	}
	for range workers {
		if err := <-errs; err != nil {
			b.Fatal(err)
		}
	}
}

// transferBlobs transfers one blob for each value of todo, with one
// connection.
func transferBlobs(transport *http.Transport, method string, to netip.AddrPort, todo <-chan struct{}) error {
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for range todo {
		var body io.Reader
		if method == http.MethodPut {
			body = io.LimitReader(zeros{}, blobSize) // of unknown length: chunked
		}
		request, err := http.NewRequest(method, "http://"+to.String(), body)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkListeners opens 2,000 ports, and reports the memory and the file
// descriptors of each.
func BenchmarkListeners(b *testing.B) {
	const n = 2000
	for b.Loop() {
		f := newFixture(b, "127.0.0.1", func(s *Server) { s.listen = listen })
		before := usage(b)
		for i := range n {
			f.Set(NodePort{
				Port: uint16(10_000 + i), ServicePort: fmt.Sprintf("ns/web-%d:http", i),
				Targets: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")},
			})
		}
		start := time.Now()
		f.awaitListeners(n)
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "ms")
		after := usage(b)
		b.ReportMetric(float64(after.bytes-before.bytes)/n, "B/listener")
		b.ReportMetric(float64(after.files-before.files)/n, "fds/listener")
		f.Drain(b.Context())
	}
}

// use is the memory and the file descriptors of the process.
type use struct{ bytes, files int }

func usage(b *testing.B) use {
	b.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		b.Fatal(err)
	}
	return use{int(m.HeapAlloc + m.StackInuse), len(files)}
}
