package localhost

import (
	"time"

	"k8s.io/klog/v2"
)

// fullLogPeriod is the minimum interval between messages about the limit of
// connections.
const fullLogPeriod = 10 * time.Second

// reserve waits for a place in Slots. Meanwhile, the kernel queues further
// clients of the port.
func (s *Server) reserve() {
	if s.config.Slots == nil {
		return
	}
	select {
	case s.config.Slots <- struct{}{}:
		return
	default:
	}
	s.logFull()
	s.config.Slots <- struct{}{}
}

// release gives back the place that reserve took.
func (s *Server) release() {
	if s.config.Slots != nil {
		<-s.config.Slots
	}
}

func (s *Server) logFull() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); now.Sub(s.fullLogged) >= fullLogPeriod {
		s.fullLogged = now
		klog.InfoS("Clients of NodePorts on localhost wait, because the limit of open connections is reached",
			"address", s.config.Addr, "limit", cap(s.config.Slots))
	}
}
