package app

import (
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/healthcheck/connlimit"
)

// maxScrapes is the limit of concurrent requests for metrics. Each of them has
// all metrics in memory. Further requests get status 503.
const maxScrapes = 8

// endTime is how long a new request waits until another one has ended.
const endTime = time.Second

// limitScrapes returns a handler that keeps clients that do not read their
// answers from keeping out others: at the limit, a new request ends the oldest
// one of the client that has the most.
func limitScrapes(metrics http.Handler) http.Handler {
	limit := connlimit.New[string]("requests for metrics", maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, _, _ := net.SplitHostPort(r.RemoteAddr)
		answer, ended := http.NewResponseController(w), make(chan struct{})
		var deadline sync.Once // set for a new request, or never after this one has ended
		place := limit.Add(client, func() {
			deadline.Do(func() { _ = answer.SetWriteDeadline(time.Now()) })
			select {
			case <-ended:
			case <-time.After(endTime): // it still collects the metrics
			}
		})
		defer close(ended)
		defer deadline.Do(func() {})
		defer place.Release()
		metrics.ServeHTTP(w, r)
	})
}
