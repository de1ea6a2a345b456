package ejector

import "net/netip"

// maxAttemptsOf limits the attempts to one endpoint in a walk, maxAttemptsBy
// those of one client to it, so that a flood does not hide the others.
const (
	maxAttemptsOf = 32
	maxAttemptsBy = 2
)

// attempt is an attempt of a client without an answer.
type attempt struct {
	client, frontend, endpoint netip.AddrPort
	id                         uint32
}

// sample selects attempts of a look.
type sample struct {
	attempts map[attempt]struct{}
	clients  map[destination][]netip.Addr // of attempts
}

// destination is an endpoint that clients of a frontend reach.
type destination struct{ frontend, endpoint netip.AddrPort }

func newSample() *sample {
	return &sample{attempts: make(map[attempt]struct{}), clients: make(map[destination][]netip.Addr)}
}

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
	s.attempts[a] = struct{}{}
}
