package proxier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/history"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/script"
)

// TestScripts runs the scripts about a Proxier in a network namespace. These
// are their steps, besides exec and other standard ones. FAMILY is IPv4 or
// IPv6.
//
//	start FAMILY… [OPTION…]  makes a Proxier of node1; the options are fields of Config
//	apply FILE               passes objects of the API, as a source does
//	delete FILE              passes their deletion
//	listed [services|slices] ends the first lists
//	loop                     runs the loops until the end
//	sync, resync, check      does once what the loops do, without loops
//	request [DURATION]       requests a sync, for a while all the time
//	fail FAMILY [once]       makes commits fail with ENOMEM
//	hang FAMILY              makes commits wait
//	work FAMILY              makes them succeed again
//	query-patience DURATION  sets the time for which a query waits
//	patience FAMILY DURATION sets the time for which changes may wait
//	commits FAMILY           prints the number of commits, also of those that failed
//	handover FAMILY          takes the changes from the tracker, and prints them
//	node                     prints what is known about the node
//	query FAMILY             asks the loop for its Services
//	ports FAMILY             prints the ports of the addresses in the kernel
//	status, health, events   prints what these functions return; events once
//	history [NAMESPACE/NAME] prints the history, without times
//	metrics NAME…            prints metrics
func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{
		Namespace: true,
		Patience:  10 * time.Second,
		Setup: func(e *script.Env) (map[string]script.Command, error) {
			s := &story{t: e.T, faults: make(map[string]*fault), given: make(map[any]func() any)}
			return script.Steps(map[string]any{
				"start": s.start, "apply": s.apply, "delete": s.delete, "listed": s.listed, "loop": s.loop,
				"sync":    s.each(func(l *syncLoop) { l.attempt("Sync", l.table.Sync) }),
				"resync":  s.each(func(l *syncLoop) { l.attempt("Resync", l.table.Resync) }),
				"check":   s.each((*syncLoop).check),
				"request": s.request, "query-patience": func(d time.Duration) { s.p.patience = d },
				"fail": func(family string, once ...string) {
					s.faults[family].set(unix.ENOMEM, len(once) > 0, nil)
				},
				"hang":     func(family string) { s.faults[family].set(nil, false, make(chan struct{})) },
				"work":     func(family string) { s.faults[family].set(nil, false, nil) },
				"patience": s.setPatience, "commits": s.commits, "handover": s.handover, "node": s.node,
				"query": s.query, "ports": ports, "status": s.status, "health": s.health, "events": s.events,
				"metrics": s.metrics, "history": s.history,
			}), nil
		},
	})
}

// story is the state of a script.
type story struct {
	t      testing.TB
	p      *Proxier
	loops  []*syncLoop
	runs   bool               // the loops run
	given  map[any]func() any // the parsed objects, and functions that parse them again
	faults map[string]*fault  // by family

	mu       sync.Mutex // guards recorded
	recorded []cluster.Event
}

// fault is what happens to the commits of a family.
type fault struct {
	mu      sync.Mutex // guards the fields below
	err     error
	once    bool
	release chan struct{} // nil unless commits wait
	commits int
}

func (f *fault) commit(commit func() error) error {
	f.mu.Lock()
	f.commits++
	err, release := f.err, f.release
	if f.once {
		f.err = nil
	}
	f.mu.Unlock()
	if release != nil {
		<-release
	}
	if err != nil {
		return err
	}
	return commit()
}

func (s *story) start(args ...string) error {
	config := sampleConfig()
	config.Events = s
	families, err := script.SetFields(&config, args)
	if err == nil {
		families, err = script.SetFields(&config.Rules, families)
	}
	var served []nft.Family
	for _, name := range families {
		if familyNamed(name) == 0 {
			return fmt.Errorf("no option is named %s", name)
		}
		served = append(served, familyNamed(name))
		s.faults[name] = new(fault)
	}
	opened := 0
	config.open = func() (keep.Kernel, error) {
		fault := s.faults[served[opened].Name()]
		opened++
		return openWith(func(_ *nft.Batch, commit func() error) error { return fault.commit(commit) })()
	}
	s.p = newTestProxier(s.t, config, served...)
	s.loops, s.runs = nil, false
	for _, f := range s.p.families {
		s.loops = append(s.loops, newSyncLoop(f))
	}
	return err
}

func familyNamed(name string) nft.Family {
	return map[string]nft.Family{"IPv4": nft.IPv4, "IPv6": nft.IPv6}[name]
}

func (s *story) listed(which ...string) {
	if !slices.Contains(which, "slices") {
		s.p.OnServiceSynced()
	}
	if !slices.Contains(which, "services") {
		s.p.OnEndpointSlicesSynced()
	}
}

func (s *story) loop() {
	for _, f := range s.p.families {
		select {
		case <-f.wake: // only later changes and failures request a sync
		default:
		}
		if listed, _ := s.p.tracker.state(); listed && f.lastSync.Load() == nil {
			f.request()
		}
	}
	s.runs = true
	startLoop(s.t, s.p)
	s.t.Cleanup(func() { // it is called first
		for _, f := range s.faults {
			f.set(nil, false, nil)
		}
	})
}

// each returns a step for all families. It fails if their syncs do.
func (s *story) each(step func(*syncLoop)) func() error {
	return func() error {
		var errs []error
		for _, l := range s.loops {
			step(l)
			if last := l.lastSync.Load(); last != nil && last.Error != "" {
				errs = append(errs, fmt.Errorf("%s: %s", l.name(), last.Error))
			}
		}
		return errors.Join(errs...)
	}
}

func (s *story) request(all ...time.Duration) {
	s.p.Sync()
	for _, duration := range all {
		ctx, cancel := context.WithTimeout(context.Background(), duration)
		s.t.Cleanup(cancel)
		go func() {
			for ; ctx.Err() == nil; time.Sleep(pollPeriod) {
				s.p.Sync()
			}
		}()
	}
}

// set sets what happens to commits.
func (f *fault) set(err error, once bool, release chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.release != nil {
		close(f.release)
	}
	f.err, f.once, f.release = err, once, release
}

func (s *story) commits(family string) int {
	f := s.faults[family]
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.commits
}

func (s *story) setPatience(family string, patience time.Duration) {
	h := s.p.families.of(familyNamed(family)).health
	h.mu.Lock()
	defer h.mu.Unlock()
	h.patience = patience
}

func (s *story) query(family string) (text string, err error) {
	err = s.p.Query(s.t.Context(), familyNamed(family), func(table *table.Table) error {
		for name := range table.ServiceNames() {
			text += name.String() + "\n"
		}
		return nil
	})
	return text, err
}

// ports prints the frontends of a table of the kernel: their addresses,
// protocols and ports.
func ports(name string) (string, error) {
	family := map[string]string{"IPv4": "ip", "IPv6": "ip6"}[name]
	list, err := exec.Command("nft", "list", "map", family, ruleset.TableName, "service-classes").Output()
	if err != nil {
		return "", err
	}
	frontend := regexp.MustCompile(`(\S+) \. (\S+) \. (\d+) (?:comment .*)?:`)
	var all []string
	for _, m := range frontend.FindAllStringSubmatch(string(list), -1) {
		all = append(all, strings.Join(m[1:], " "))
	}
	slices.Sort(all)
	return lines(all), nil
}

// publish makes the numbers of the tables visible, if the loops answer.
func (s *story) publish() {
	for _, f := range s.p.families {
		if !s.runs {
			f.publish()
			continue
		}
		_ = s.p.Query(s.t.Context(), f.table.Family(), func(*table.Table) error {
			f.publish()
			return nil
		})
	}
}

func (s *story) status() string {
	s.publish()
	status := s.p.Status()
	synced := false
	select {
	case <-s.p.Synced():
		synced = true
	default:
	}
	text := fmt.Sprintf("%s listed %v synced %v\n", status.Node, status.Listed, synced)
	if status.NoTimeouts {
		text += fmt.Sprintf("no timeouts, retry after %d s\n", status.RetryAfterSeconds)
	}
	for _, f := range status.Families {
		text += fmt.Sprintf("%s healthy %v synced %v waiting %v\n",
			f.Family.Name(), f.Healthy, !f.Synced.IsZero(), !f.WaitingSince.IsZero())
		text += fmt.Sprintf("  services %d ports %d rows %d rewrites %d repairs %v\n",
			f.Services, f.ServicePorts, f.Rows["service-classes"], f.Rewrites, f.Repairs)
		if l := f.LastSync; l != nil {
			text += fmt.Sprintf("  last sync: %s, whole %v, %s\n", l.Cause, l.Whole, cmp.Or(l.Error, "success"))
		}
		if l := f.LastWrite; l != nil {
			text += fmt.Sprintf("  last write: %s, %d rows\n", l.Cause, l.Rows)
		}
		for _, e := range f.LastChanges {
			text += fmt.Sprintf("    %s: %s\n", e.Subject(), e.Text())
		}
	}
	return text
}

func (s *story) health() string {
	text := fmt.Sprintf("healthy %v\n", s.p.Healthy())
	for _, f := range s.p.Health() {
		text += fmt.Sprintf("%s synced %v in time %v\n", f.Family, !f.LastUpdated.IsZero(), f.Healthy)
	}
	return text
}

// Record implements cluster.EventRecorder.
func (s *story) Record(e cluster.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recorded = append(s.recorded, e)
}

func (s *story) events() (text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.recorded {
		text += fmt.Sprintf("%s %s/%s %s: %s\n", e.Kind, e.Namespace, e.Name, e.Reason, e.Note)
	}
	s.recorded = nil
	return text
}

func (s *story) history(service ...string) (text string) {
	var q history.Query
	if len(service) > 0 {
		q.Namespace, q.Name, _ = strings.Cut(service[0], "/")
	}
	for _, e := range s.p.History(q) {
		line := fmt.Sprintln(e.Family.Name(), e.Cause, e.Subject()+":", e.Text())
		text += regexp.MustCompile(` in [\d.]+m?s\)`).ReplaceAllString(line, ")")
	}
	return text
}

func (s *story) metrics(names ...string) (text string) {
	s.publish()
	all := gather(s.t, s.p.Metrics())
	for _, name := range names {
		for _, m := range all[name].GetMetric() {
			text += name
			for _, label := range m.GetLabel() {
				text += " " + label.GetValue()
			}
			text += fmt.Sprintln("", value(m))
		}
	}
	return text
}

// value returns the value of a counter or a gauge, or the number of
// observations of a histogram.
func value(m *dto.Metric) float64 {
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
}
