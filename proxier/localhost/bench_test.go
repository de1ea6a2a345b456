package localhost

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
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
	transport := &http.Transport{DialContext: dial, MaxConnsPerHost: workers, MaxIdleConnsPerHost: workers}
	defer transport.CloseIdleConnections()
	var wait sync.WaitGroup
	for range blobs {
		wait.Go(func() {
			var body io.Reader
			if method == http.MethodPut {
				body = io.LimitReader(zeros{}, blobSize) // of unknown length: chunked
			}
			request, err := http.NewRequest(method, "http://"+to.String(), body)
			if err != nil {
				b.Error(err)
				return
			}
			response, err := transport.RoundTrip(request)
			if err != nil {
				b.Error(err)
				return
			}
			defer response.Body.Close()
			if _, err := io.Copy(io.Discard, response.Body); err != nil {
				b.Error(err)
			}
		})
	}
	wait.Wait()
}
