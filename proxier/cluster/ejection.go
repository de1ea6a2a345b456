package cluster

import (
	"fmt"
	"net/netip"
	"time"
)

// Ejection is why new connections to a service port avoid one of its endpoints,
// and until when.
type Ejection struct {
	Endpoint netip.AddrPort `json:"endpoint"`
	Since    time.Time      `json:"since"`
	// Until is the time of the probe that can prolong the ejection.
	Until time.Time `json:"until"`
	// Attempts is the number of attempts of clients that the endpoint did not
	// answer, Clients the number of their addresses, Probes the number of
	// probes of this node that it did not answer.
	Attempts int `json:"attempts"`
	Clients  int `json:"clients"`
	Probes   int `json:"probes"`
}

// Why returns the reason of the ejection: 3 attempts of 2 clients unanswered, 2
// probes lost.
func (e Ejection) Why() string {
	return fmt.Sprintf("%s of %s unanswered, %s lost",
		count(e.Attempts, "attempt"), count(e.Clients, "client"), count(e.Probes, "probe"))
}

// String returns the time and the reason of the ejection.
func (e Ejection) String() string {
	return fmt.Sprintf("ejected since %s, until %s at least: %s",
		e.Since.Format(time.RFC3339), e.Until.Format(time.RFC3339), e.Why())
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// MaxEjected returns how many of n usable endpoints may be ejected at a time:
// half of them, so never the last one.
func MaxEjected(n int) int { return n / 2 }
