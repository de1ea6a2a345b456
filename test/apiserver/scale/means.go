package main

import (
	"time"

	"github.com/nftproxy/nftproxy/test/apiserver/scale/observe"
	"github.com/nftproxy/nftproxy/test/apiserver/scale/result"
)

// mean returns a mean in seconds; 0 of nothing.
func mean(sum time.Duration, n int) float64 { return sum.Seconds() / float64(max(n, 1)) }

// meanTraffic returns the means of what was exchanged in n measurements, and the longest of the longest times.
func meanTraffic(all []observe.Traffic, n int) result.Traffic {
	var out result.Traffic
	per := 1 / float64(max(n, 1))
	for _, t := range all {
		out.Sends += float64(t.Sends) * per
		out.Sent += float64(t.Sent) * per
		out.Received += float64(t.Received) * per
		out.Longest = max(out.Longest, t.Longest.Seconds())
		out.Lost = out.Lost || t.Lost > 0
	}
	return out
}
