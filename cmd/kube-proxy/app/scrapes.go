package app

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxScrapes is the limit of concurrent requests for metrics. Each of them has
// all metrics in memory. Further requests get status 503.
const maxScrapes = 8

// scrapes keeps clients that do not read their answers from keeping out others:
// at the limit, a new request ends the oldest one of the client that has the
// most.
type scrapes struct {
	metrics http.Handler
	mu      sync.Mutex
	active  []*request // the oldest first
}

// request is one that is being answered.
type request struct {
	client string
	answer *http.ResponseController
	ended  chan struct{}
}

// endTime is how long a new request waits until another one has ended.
const endTime = time.Second

// ServeHTTP implements http.Handler.
func (s *scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	client, _, _ := net.SplitHostPort(r.RemoteAddr)
	c := &request{client, http.NewResponseController(w), make(chan struct{})}
	if before := s.add(c); before != nil {
		select {
		case <-before.ended:
		case <-time.After(endTime): // it still collects the metrics
		}
	}
	defer s.remove(c)
	s.metrics.ServeHTTP(w, r)
}

// add adds a request. It returns the one that ends for it, or nil.
func (s *scrapes) add(c *request) (before *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.active) >= maxScrapes {
		before = s.leastFair()
		s.active = slices.DeleteFunc(s.active, func(a *request) bool { return a == before })
		_ = before.answer.SetWriteDeadline(time.Now()) // it has not ended: that takes the lock
	}
	s.active = append(s.active, c)
	return before
}

// leastFair returns the oldest request of the client that has the most.
func (s *scrapes) leastFair() *request {
	number := make(map[string]int)
	for _, a := range s.active {
		number[a.client]++
	}
	return slices.MaxFunc(s.active, func(a, b *request) int { return number[a.client] - number[b.client] })
}

func (s *scrapes) remove(c *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = slices.DeleteFunc(s.active, func(a *request) bool { return a == c })
	close(c.ended)
}
