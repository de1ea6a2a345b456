package ejector

import (
	"math/rand/v2"
	"net/netip"
)

const (
	// maxAttempts limits the attempts of a walk (2 MB), maxAttemptsOf those to
	// one endpoint, and maxAttemptsBy those of one client to it, so that a
	// flood does not hide the others.
	maxAttempts   = 1 << 13
	maxAttemptsOf = 32
	maxAttemptsBy = 2
)

// attempt is an attempt of a client without an answer.
type attempt struct {
	client, frontend, endpoint netip.AddrPort
	id                         uint32
}

// sample selects attempts of a look. If there are too many, each has the same
// chance.
type sample struct {
	attempts []attempt
	seen     int
	clients  map[destination][]netip.Addr // of attempts
}

// destination is an endpoint that clients of a frontend reach.
type destination struct{ frontend, endpoint netip.AddrPort }

func newSample() *sample { return &sample{clients: make(map[destination][]netip.Addr)} }

func (s *sample) add(a attempt) {
	to := destination{a.frontend, a.endpoint}
	clients, by := s.clients[to], 0
	for _, c := range clients {
		if c == a.client.Addr() {
			by++
		}
	}
	if len(clients) == maxAttemptsOf || by == maxAttemptsBy {
		return
	}
	s.clients[to] = append(clients, a.client.Addr())
	s.seen++
	if len(s.attempts) < maxAttempts {
		s.attempts = append(s.attempts, a)
	} else if i := rand.IntN(s.seen); i < maxAttempts {
		s.attempts[i] = a
	}
}

// set returns the selected attempts.
func (s *sample) set() map[attempt]struct{} {
	all := make(map[attempt]struct{}, len(s.attempts))
	for _, a := range s.attempts {
		all[a] = struct{}{}
	}
	return all
}
