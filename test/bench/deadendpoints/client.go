package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/bench/report"
)

// What clients do, and what counts as slow.
const (
	patience = 10 * time.Second // of a connect
	slow     = 500 * time.Millisecond
	settled  = 4 * time.Second // after a fault
	// A resolver repeats its question from the same socket (resolv.conf(5),
	// options timeout and attempts).
	resolverTimeout  = 5 * time.Second
	resolverAttempts = 2
)

// dialer opens a socket and connects it.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// target is what clients connect to, for example tcp://10.96.0.10:80. A UDP
// target gets questions of a resolver.
type target struct {
	network string
	at      netip.AddrPort
}

func parseTarget(text string) (to target, err error) {
	network, at, _ := strings.Cut(text, "://")
	to.network = network
	if network != "tcp" && network != "udp" {
		return to, fmt.Errorf("target %q: want tcp://ADDRESS:PORT or udp://ADDRESS:PORT", text)
	}
	if to.at, err = netip.ParseAddrPort(at); err != nil {
		return to, fmt.Errorf("target %q: %w", text, err)
	}
	return to, nil
}

// fates are the connects of clients to targets of one kind.
type fates struct {
	mu       sync.Mutex
	attempts int
	failed   map[string]int // by error
	waits    report.Sample  // of connects that did not fail, and were slow
	late     int            // slow or failed, of those that began when the fault was settled
	// faultAt is the time of a fault while clients connect. lasted is the time
	// from a fault to the last connect that was slow or failed.
	faultAt time.Time
	lasted  time.Duration
}

func newFates() *fates { return &fates{failed: map[string]int{}} }

func (f *fates) add(at time.Time, since, took time.Duration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attempts++
	if err == nil && took <= slow {
		return
	}
	f.lasted = max(f.lasted, at.Sub(f.faultAt))
	if err == nil {
		f.waits.Add(took)
	} else {
		f.failed[cause(err)]++
	}
	if since >= settled {
		f.late++
	}
}

// cause shortens an error.
func cause(err error) string {
	var number syscall.Errno
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.As(err, &number):
		return unix.ErrnoName(number)
	}
	return err.Error()
}

// figures returns the row of a table.
func (f *fates) figures() []report.Figure {
	f.mu.Lock()
	defer f.mu.Unlock()
	failed, causes := 0, make([]string, 0, len(f.failed))
	for text, n := range f.failed {
		failed += n
		causes = append(causes, fmt.Sprintf("%s %d", text, n))
	}
	within := 0
	for _, seconds := range f.waits {
		if seconds <= 1.5 {
			within++
		}
	}
	row := []report.Figure{
		report.Number("connects", f.attempts), report.Number("failed", failed), report.Number("slow", len(f.waits)),
		report.Number("of them ~1 s", within), report.Time("longest", f.waits, 1),
	}
	if f.faultAt.IsZero() {
		row = append(row, report.Number("slow or failed after 4 s", f.late))
	} else {
		row = append(row, report.Value("the last began after", report.Seconds, f.lasted.Seconds()))
	}
	if failed > 0 {
		row = append(row, report.Label("errors", strings.Join(causes, ", ")))
	}
	return row
}

// connect connects to the targets in turn, at the rate per second, until the
// time has passed, and counts those connects that begin from began on. It
// returns when every connect has ended.
func (f *fates) connect(
	ctx context.Context, dial dialer, targets []target, rate int, began time.Time, d time.Duration,
) {
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	var attempts sync.WaitGroup
	for i := 0; time.Since(began) < d && ctx.Err() == nil; i++ {
		to := targets[i%len(targets)]
		attempts.Go(func() {
			at := time.Now()
			if err := to.attempt(ctx, dial); !at.Before(began) {
				f.add(at, at.Sub(began), time.Since(at), err)
			}
		})
		<-ticker.C
	}
	attempts.Wait()
}

// attempt connects, or asks a resolver's question, and closes the socket.
func (to target) attempt(ctx context.Context, dial dialer) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := dial(ctx, to.network, to.at.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if tcp, ok := conn.(*net.TCPConn); ok {
		return tcp.SetLinger(0) // Close resets, which leaves no TIME_WAIT on the port
	}
	answer := make([]byte, 512)
	for range resolverAttempts {
		if _, err = conn.Write(question); err != nil {
			return err
		}
		if err = conn.SetReadDeadline(time.Now().Add(resolverTimeout)); err != nil {
			return err
		}
		if _, err = conn.Read(answer); err == nil {
			return nil
		}
	}
	return err
}

// question asks for the address of kubernetes.default.svc.cluster.local
// (RFC 1035, section 4.1).
var question = append([]byte{0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0},
	"\x0akubernetes\x07default\x03svc\x07cluster\x05local\x00\x00\x01\x00\x01"...)
