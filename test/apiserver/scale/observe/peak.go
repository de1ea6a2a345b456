package observe

import (
	"sync"
	"time"
)

// Peak follows the memory of a group. Children that live shorter than the time between two looks may be missed.
type Peak struct {
	stop chan struct{}
	done chan struct{}

	mu   sync.Mutex
	most int64 // guarded by mu
}

// FollowPeak looks at a group until Stop.
func FollowPeak(g *Group) *Peak {
	const period = 20 * time.Millisecond
	p := &Peak{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-tick.C:
			}
			now, err := g.Resident()
			if err != nil {
				return // the group is gone
			}
			p.mu.Lock()
			p.most = max(p.most, now)
			p.mu.Unlock()
		}
	}()
	return p
}

// Take returns the most memory since the last call, in bytes.
func (p *Peak) Take() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := p.most
	p.most = 0
	return most
}

// Stop ends looking.
func (p *Peak) Stop() {
	close(p.stop)
	<-p.done
}
