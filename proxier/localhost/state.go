package localhost

import "net/netip"

// State describes a NodePort of a Server.
type State struct {
	NodePort
	// Pinned is the endpoint that session affinity chooses for the next
	// connection. It is invalid if any endpoint can be chosen.
	Pinned netip.AddrPort
	// Failure is the reason why a port with targets is closed, "" if it is open
	// or about to be opened.
	Failure string
}

// State returns the state of a NodePort. It has no targets if the port is
// closed.
func (s *Server) State(port uint16) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.ports[port]
	if p == nil {
		return State{}
	}
	state := State{NodePort: p.NodePort, Failure: p.failure.cause}
	if s.draining {
		state.Failure = "the proxy is about to end"
	}
	if p.isPinned(s.now()) {
		state.Pinned = p.pin
	}
	return state
}
