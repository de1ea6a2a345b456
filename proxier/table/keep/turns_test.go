package keep

import (
	"fmt"
	"testing"
	"time"
)

// A simulation is a queue whose parts take as long as they cost: 1 µs for a
// cost of 1. Its clock is that of the parts.
type simulation struct {
	Keeper
	now    time.Duration
	served map[*simulated]time.Duration // the end of the last part with the owner
	waits  map[*simulated]time.Duration // the longest wait of the owner
	began  map[*simulated]time.Duration // to wait
}

// simulated is an owner that has an account of its own.
type simulated struct {
	kept    Kept
	account Account
	cost    int
}

func (o *simulated) Kept() *Kept       { return &o.kept }
func (o *simulated) Account() *Account { return &o.account }
func (o *simulated) Tag() uint32       { return 1 }
func (o *simulated) String() string    { return fmt.Sprint("cost ", o.cost) }

// costs is a Source that has nothing but costs.
type costs struct{ Source }

func (costs) Cost(o Owner, _ Content) int       { return o.(*simulated).cost }
func (costs) Together(Owner, func(Owner, bool)) {}
func simulatedTime(cost int) time.Duration      { return time.Duration(cost) * time.Microsecond }
func simulatedOwner(cost int) *simulated        { return &simulated{cost: cost} }

func newSimulation() *simulation {
	limits := DefaultLimits()
	limits.Burst = time.Hour
	s := &simulation{
		served: make(map[*simulated]time.Duration), waits: make(map[*simulated]time.Duration),
		began: make(map[*simulated]time.Duration),
	}
	s.source, s.limits, s.queue.rate = costs{}, &limits, 1000
	return s
}

// touch makes an owner wait.
func (s *simulation) touch(o *simulated) {
	if !o.kept.pending {
		s.began[o] = s.now
	}
	s.Touch(o)
}

// sync serves one part, as a sync does whose part takes Limits.Time.
func (s *simulation) sync() {
	turns := s.queue.turns(time.Now(), s.limits.Burst, s.cost)
	p := s.nextPart(&turns)
	if len(p.owners) == 0 {
		s.now += time.Millisecond
		return
	}
	used := simulatedTime(p.cost)
	s.now += used
	s.charge(p, used)
	for _, owner := range p.owners {
		o := owner.(*simulated)
		o.kept.taken, o.kept.pending = false, false
		s.served[o], s.waits[o] = s.now, max(s.waits[o], s.now-s.began[o])
	}
	s.queue.compact()
}

// While each of 20 accounts has a heavy owner that changes all the time, a
// light one waits for one of them at most, and for the part before.
func TestLightBesideManyHeavy(t *testing.T) {
	s := newSimulation()
	var heavy []*simulated
	for range 20 {
		heavy = append(heavy, simulatedOwner(20_000))
	}
	light := simulatedOwner(10)
	for i := range 1000 {
		for _, o := range heavy {
			s.touch(o)
		}
		if i%7 == 0 {
			s.touch(light)
		}
		s.sync()
	}
	if limit := simulatedTime(20_000 + 10); s.waits[light] > limit {
		t.Errorf("a light owner waited %v, want at most %v", s.waits[light], limit)
	}
	for _, o := range heavy {
		if limit := 25 * simulatedTime(20_000); s.waits[o] > limit {
			t.Errorf("a heavy owner waited %v, want at most %v", s.waits[o], limit)
		}
	}
}

// While light owners of many accounts need more than a core, heavy ones get
// their share: one is served after light ones of lightShare times its cost. A
// light owner waits for a heavy one at most beside its turn among light ones.
func TestHeavyBesideManyLight(t *testing.T) {
	s := newSimulation()
	heavy := []*simulated{simulatedOwner(20_000), simulatedOwner(40_000)}
	var light []*simulated
	for range 1000 {
		light = append(light, simulatedOwner(40))
	}
	for s.now < 4*time.Second {
		for _, o := range append(heavy, light...) {
			s.touch(o)
		}
		s.sync()
	}
	for _, o := range heavy {
		// Both, each after its share of light ones, and a part that has begun.
		if limit := (lightShare + 1) * simulatedTime(60_000+20_000); s.waits[o] > limit || s.served[o] == 0 {
			t.Errorf("heavy owner of %s waited %v, want at most %v", o, s.waits[o], limit)
		}
	}
	for _, o := range light {
		if limit := 2*simulatedTime(1000*40) + simulatedTime(60_000); s.waits[o] > limit {
			t.Fatalf("a light owner waited %v, want at most %v", s.waits[o], limit)
		}
	}
}
