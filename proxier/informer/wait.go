package informer

import (
	"context"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// waitFor waits until all conditions are met, ctx is done, or the timeout is
// over. A timeout of 0 means none. It reports whether the conditions are
// met.
func waitFor(ctx context.Context, timeout time.Duration, conditions ...cache.InformerSynced) bool {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	// Most conditions are met soon after the start, so the first checks are
	// frequent.
	poll := wait.Backoff{
		Duration: 2 * time.Millisecond, Factor: 1.02, Cap: 100 * time.Millisecond, Steps: math.MaxInt,
	}
	return poll.DelayFunc().Until(ctx, true, false, func(context.Context) (bool, error) {
		for _, met := range conditions {
			if !met() {
				return false, nil
			}
		}
		return true, nil
	}) == nil
}
