package lab

import (
	"context"
	"time"
)

// Sleep waits, and reports whether ctx has not ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err() == nil
}
