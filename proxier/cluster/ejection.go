package cluster

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"
)

// Ejection is why new connections to a service port avoid one of its endpoints,
// and until when.
type Ejection struct {
	Endpoint netip.AddrPort `json:"endpoint"`
	Since    time.Time      `json:"since"`
	// Until is the time of the probe that can prolong the ejection. It is zero
	// for an endpoint that is unhealthy.
	Until time.Time `json:"until,omitzero"`
	// OnTrial reports whether the endpoint gets connections again although it
	// answered no probe. It counts as one that does not answer.
	OnTrial bool `json:"onTrial,omitempty"`
	// Attempts is the number of attempts of clients that the endpoint did not
	// answer, Clients the number of their addresses, Probes the number of
	// probes of this node that it did not answer.
	Attempts int `json:"attempts"`
	Clients  int `json:"clients"`
	Probes   int `json:"probes"`
	// Checks is the number of health checks in a row that failed, Reply what
	// came back for the last one. Checks is 0 unless the endpoint is unhealthy.
	Checks int    `json:"checks,omitempty"`
	Reply  string `json:"reply,omitempty"`
}

// Unhealthy reports whether health checks are the reason of the ejection, and
// not attempts of clients without an answer.
func (e Ejection) Unhealthy() bool { return e.Checks > 0 }

// Compare orders ejections by endpoint. An endpoint can be ejected for both
// reasons: health checks are the first one.
func (e Ejection) Compare(o Ejection) int {
	return cmp.Or(e.Endpoint.Compare(o.Endpoint), cmp.Compare(min(o.Checks, 1), min(e.Checks, 1)))
}

// Why returns the reason of the ejection: 3 attempts of 2 clients unanswered, 2
// probes lost; or 3 health checks failed, answer to the last one: RST.
func (e Ejection) Why() string {
	if e.Unhealthy() {
		return fmt.Sprintf("%s failed, answer to the last one: %s", count(e.Checks, "health check"), e.Reply)
	}
	return fmt.Sprintf("%s of %s unanswered, %s lost",
		count(e.Attempts, "attempt"), count(e.Clients, "client"), count(e.Probes, "probe"))
}

// String returns the time and the reason of the ejection.
func (e Ejection) String() string {
	if e.Unhealthy() {
		return fmt.Sprintf("ejected since %s: %s", e.Since.Format(time.RFC3339), e.Why())
	}
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
