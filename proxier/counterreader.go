package proxier

import (
	"sync"

	"github.com/nftproxy/nftproxy/nft"
)

// counterReader is the connection with which collectors of metrics read
// counters in the kernel. Any goroutine can use it.
type counterReader struct {
	mu   sync.Mutex
	conn *nft.Conn // nil before setUp and after Close
}

func (r *counterReader) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		return nil
	}
	err := r.conn.Close()
	r.conn = nil
	return err
}

// read calls f, unless the connection is not open. Only one call runs at a
// time.
func (r *counterReader) read(f func(*nft.Conn) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		return nil
	}
	return f(r.conn)
}
