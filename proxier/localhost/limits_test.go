package localhost

import (
	"io"
	"strings"
	"testing"
	"time"
)

// A server can answer before it has read a request, and close.
func TestEarlyAnswer(t *testing.T) {
	const answer = "413 too large"
	bothAddrs(t, func(t *testing.T, f *fixture) {
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
			send(t, server, answer)
			server.Close() // resets the connection, because there are bytes to read
			<-uploaded
			got, _ := io.ReadAll(client) // the reset follows the answer
			if string(got) != answer {
				t.Fatalf("got %q, want %q", got, answer)
			}
		}
		f.awaitConnections(0)
	})
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
	expectReset(t, server)
}

// Clients wait while there are as many connections as slots.
func TestSlots(t *testing.T) {
	f := newFixture(t, "127.0.0.1", func(s *Server) { s.config.Slots = make(chan struct{}, 1) })
	e := f.endpoint()
	f.serve(0, e)
	first, _ := f.pair(e)
	second := f.connect()
	send(t, second, "second")
	select {
	case <-e.conns:
		t.Fatal("the endpoint got two connections, want one")
	case <-time.After(200 * time.Millisecond):
	}
	reset(first)
	server := e.next(t)
	second.CloseWrite()
	expectAll(t, server, "second")
	server.Close()
	f.awaitConnections(0)
	if n := len(f.config.Slots); n != 0 {
		t.Errorf("%d slots are taken, want 0", n)
	}
}
