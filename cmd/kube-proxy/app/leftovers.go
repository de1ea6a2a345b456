package app

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// minLeftoversRetry and maxLeftoversRetry bound the pause before another
// attempt to remove leftovers. It doubles after each attempt.
const (
	minLeftoversRetry = 10 * time.Second
	maxLeftoversRetry = 10 * time.Minute
)

// removeLeftovers calls remove until it succeeds or ctx ends. It retries
// because iptables rules of another mode can apply to a packet before our
// rules do.
func removeLeftovers(ctx context.Context, remove func() error) {
	for pause := minLeftoversRetry; ; pause = min(2*pause, maxLeftoversRetry) {
		err := remove()
		if err == nil || ctx.Err() != nil {
			return
		}
		klog.ErrorS(err, "Failed to remove all rules of another kube-proxy mode; they may misroute traffic",
			"retryAfter", pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
