package localhost

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// A server can answer before it has read a request, and close.
func TestEarlyAnswer(t *testing.T) {
	const answer = "413 too large"
	t.Parallel()
	f := newFixture(t, "127.0.0.1", nil)
	e := f.endpoint()
	f.serve(0, e)
	for range 30 {
		client, server := f.pair(e)
		uploaded := make(chan struct{})
		go func() {
			defer close(uploaded)
			io.WriteString(client, strings.Repeat("body", 1<<20))
		}()
		io.ReadFull(server, make([]byte, 1000))
		io.WriteString(server, answer)
		server.Close() // resets the connection, because there are bytes to read
		<-uploaded
		got, _ := io.ReadAll(client) // the reset follows the answer
		if string(got) != answer {
			t.Fatalf("got %q, want %q", got, answer)
		}
	}
	f.awaitConnections(0)
}

// A reset of a client ends a connection of which the endpoint reads nothing.
func TestResetOfBlockedClient(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "127.0.0.1", nil)
	e := f.endpoint()
	f.serve(0, e)
	client, server := f.pair(e)
	client.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
	if _, err := io.WriteString(client, strings.Repeat("body", 16<<20)); err == nil {
		t.Fatal("the endpoint reads")
	}
	reset(client)
	f.awaitConnections(0)
	if err := isBroken(server); err != nil {
		t.Error(err)
	}
}

// A connection without traffic holds no buffer, and neither does one of which a
// side does not read. When that side reads again, all bytes arrive.
func TestStalledConnections(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var buffers []weak.Pointer[[bufferSize]byte]
	f := newFixture(t, "127.0.0.1", func(s *Server) {
		s.buffers.New = func() any {
			mu.Lock()
			defer mu.Unlock()
			b := new([bufferSize]byte)
			buffers = append(buffers, weak.Make(b))
			return b
		}
	})
	e := f.endpoint()
	f.serve(0, e)
	text := strings.Repeat("0123456789", 3<<20)
	type transfer struct {
		sender, receiver *net.TCPConn
		written          int
	}
	var transfers []*transfer
	var wait sync.WaitGroup
	idle, idleServer := f.pair(e)
	for range 2 {
		client, server := f.pair(e)
		both := []*transfer{{client, server, 0}, {server, client, 0}}
		transfers = append(transfers, both...)
		for _, x := range both {
			x.sender.SetWriteDeadline(time.Now().Add(time.Second))
			wait.Go(func() { x.written, _ = io.WriteString(x.sender, text) })
		}
	}
	wait.Wait()
	labtest.Eventually(t, patience, "stalled connections without buffers", func() error {
		runtime.GC()
		mu.Lock()
		defer mu.Unlock()
		held := 0
		for _, b := range buffers {
			if b.Value() != nil {
				held++
			}
		}
		if held > 0 || len(buffers) == 0 {
			return fmt.Errorf("%d of %d buffers are held", held, len(buffers))
		}
		return nil
	})
	for _, x := range transfers {
		if x.written == len(text) {
			t.Error("the connection is not stalled")
		}
		x.sender.CloseWrite()
		wait.Go(func() {
			got, err := io.ReadAll(x.receiver)
			if err != nil || string(got) != text[:x.written] {
				t.Errorf("got %d bytes, %v; want the %d bytes that were sent", len(got), err, x.written)
			}
		})
	}
	wait.Wait()
	idle.Close()
	idleServer.Close()
	f.awaitConnections(0)
}

// A connection whose endpoint does not answer gives its place to a new one at
// once.
func TestLimitWhileConnecting(t *testing.T) {
	t.Parallel()
	silent := netip.MustParseAddrPort("192.0.2.1:80")
	dialing := make(chan struct{}, 2)
	f := newFixture(t, "127.0.0.1", func(s *Server) {
		s.config.Limit = newLimit(1)
		dial := s.dial
		s.dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			if to != silent {
				return dial(ctx, to)
			}
			dialing <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	f.serve(0, &endpoint{at: silent})
	first := f.connect()
	<-dialing
	f.connect()
	<-dialing
	if err := isBroken(first); err != nil {
		t.Error(err)
	}
	f.awaitConnections(1)
}
