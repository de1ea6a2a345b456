package proxier

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/healthcheck"
	"github.com/nftproxy/nftproxy/nft"
)

// Proxier serves the Services that it is told of on this node. Its On methods have the names of kube-proxy's and can be called
// by any goroutine; SyncLoop carries out what they told.
type Proxier struct {
	config    *Config
	tracker   *tracker
	node      *nodeTracker
	addresses *localAddresses // nil unless NodePorts listen on some addresses only
	sink      Sink
	backends  []*Backend
	flows     *staleFlows // nil if connection tracking cannot be reached
	metrics   *metrics
	health    *health
	checks    []*healthcheck.ServiceServer
	wake      chan struct{}
	synced    chan struct{} // closed by the first sync that succeeds
}

// NewProxier returns a Proxier for one address family. It works in the network namespace of the calling thread.
func NewProxier(config Config, family nft.Family) (*Proxier, error) {
	return newProxier(config, family)
}

// NewDualStackProxier returns a Proxier for IPv4 and IPv6, each with a table and transactions of its own. It works in the network
// namespace of the calling thread.
func NewDualStackProxier(config Config) (*Proxier, error) {
	return newProxier(config, nft.IPv4, nft.IPv6)
}

func newProxier(config Config, families ...nft.Family) (*Proxier, error) {
	p, err := assemble(config, families...)
	if err != nil {
		return nil, err
	}
	if err := p.setUp(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// assemble returns a Proxier that is not connected to the kernel yet.
func assemble(config Config, families ...nft.Family) (*Proxier, error) {
	m := newMetrics()
	p := &Proxier{
		config:  &config,
		tracker: newTracker(&config, m, families...),
		node:    newNodeTracker(&config),
		metrics: m,
		health:  &health{patience: 2 * config.syncPeriod()},
		wake:    make(chan struct{}, 1),
		synced:  make(chan struct{}),
	}
	var sinks Sinks
	shared := &generation{ours: make(map[uint32]bool)}
	for _, f := range families {
		b, err := NewBackend(p.config, f)
		if err != nil {
			return nil, err
		}
		checks, err := newHealthServer(b, p.health)
		if err != nil {
			return nil, err
		}
		b.health, b.generation, b.metrics = checks, shared, m.kubeProxy.of(f)
		sinks, p.backends, p.checks = append(sinks, b), append(p.backends, b), append(p.checks, checks)
	}
	p.sink = sinks
	p.tracker.nodeChanged()
	return p, nil
}

// setUp connects to the kernel, in the network namespace of the calling thread.
func (p *Proxier) setUp() (err error) {
	if err := p.sink.Setup(); err != nil {
		return err
	}
	p.flows = openStaleFlows(p.backends, p.metrics)
	p.addresses, err = watchLocalAddresses(p.config, p.onLocalAddresses)
	return err
}

// Close closes the connections to the kernel, once SyncLoop has ended. The tables stay.
func (p *Proxier) Close() error {
	var errs []error
	if p.addresses != nil {
		p.addresses.close()
	}
	if p.flows != nil {
		errs = append(errs, p.flows.conn.Close())
	}
	for _, b := range p.backends {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

// Healthy reports whether the rules are in place and up to date: every address
// family had a successful sync, and no change waits for one for twice the sync
// period or longer.
func (p *Proxier) Healthy() bool { return p.health.ok() }

// Metrics returns what shows what the Proxier did: the metrics of kube-proxy under the names that it gives them, kubeproxy_…, and others under names
// that begin with nftproxy_. Any goroutine can collect it.
func (p *Proxier) Metrics() prometheus.Collector { return p.metrics }

// NodeName is the name of the node that the Proxier serves.
func (p *Proxier) NodeName() string { return p.config.NodeName }

// Synced returns a channel that is closed once everything that there was at first is in the kernel.
func (p *Proxier) Synced() <-chan struct{} { return p.synced }

// Sync requests a sync as soon as possible. It does not wait for it. No sync takes
// place before the first full lists of Services and EndpointSlices.
func (p *Proxier) Sync() {
	if p.tracker.ready() {
		p.health.changed()
	}
	for _, b := range p.backends {
		b.metrics.lastQueued.SetToCurrentTime()
	}
	select {
	case p.wake <- struct{}{}:
	default: // one is asked for already
	}
}

// Periods of SyncLoop that are not configurable.
const (
	// checkPeriod is the interval between checks for changes by other programs.
	checkPeriod = 50 * time.Millisecond
	// publishPeriod is the interval at which checks publish metrics.
	publishPeriod = time.Second
	// retryFirst and retryLast limit the delay before a failed sync is tried again,
	// which doubles with each failure.
	retryFirst = 100 * time.Millisecond
	retryLast  = 10 * time.Second
)

// SyncLoop syncs when it is asked to, tries again what failed, and repairs what
// other programs change in the tables. It returns when ctx ends, and leaves the
// tables as they are.
func (p *Proxier) SyncLoop(ctx context.Context) {
	var background sync.WaitGroup
	defer background.Wait()
	if p.addresses != nil {
		background.Go(func() { p.addresses.run(ctx) })
	}
	if p.flows != nil {
		background.Go(func() { p.flows.cleaner.Run(ctx) })
	}
	for _, checks := range p.checks {
		background.Go(func() { checks.Run(ctx) })
	}
	check, resync := time.NewTicker(checkPeriod), time.NewTicker(p.config.syncPeriod())
	defer check.Stop()
	defer resync.Stop()
	loop := syncLoop{proxier: p}
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
			if loop.retry == nil { // else the retry carries out this change too
				loop.schedule(max(p.config.MinSyncPeriod, loop.rest) - time.Since(loop.last))
			}
		case <-loop.due:
			loop.due = nil
			loop.run("Sync", p.syncChanges)
		case <-loop.retry:
			loop.run("Sync", p.syncChanges)
		case <-check.C:
			loop.check()
		case <-resync.C:
			loop.run("Resync", p.resync)
		}
	}
}

// syncLoop is the state of a SyncLoop.
type syncLoop struct {
	proxier *Proxier
	// last is when the last sync ended, rest the least time to wait after it.
	last   time.Time
	rest   time.Duration
	synced bool
	delay  time.Duration
	retry  <-chan time.Time // nil unless the last sync failed
	due    <-chan time.Time // of the next sync that was asked for; nil if none was
	// logged is when a sync was last logged, quiet the number of syncs since.
	logged time.Time
	quiet  int
	// published is when a check last published metrics, checkAfter when to check
	// again after a check that failed.
	published, checkAfter time.Time
}

// schedule makes a sync due after d, unless one is due already. Meanwhile the loop
// goes on checking the tables.
func (l *syncLoop) schedule(d time.Duration) {
	if l.due == nil {
		l.due = time.After(d)
	}
}

// run does a sync, and schedules another one if it failed.
func (l *syncLoop) run(what string, work func() error) {
	if !l.proxier.tracker.ready() {
		return
	}
	start := time.Now()
	err := l.proxier.health.during(work)
	l.last, l.rest = time.Now(), restAfter(time.Since(start))
	l.proxier.metrics.publish(l.proxier.backends)
	if err != nil {
		l.delay = min(max(2*l.delay, retryFirst), retryLast)
		l.retry = time.After(l.delay)
		klog.ErrorS(err, what+" failed", "retryAfter", l.delay)
		return
	}
	l.delay, l.retry = 0, nil
	l.log(what, time.Since(start))
	if !l.synced {
		l.synced = true
		close(l.proxier.synced)
		klog.InfoS("Rules are in place", "elapsed", time.Since(start))
	}
}

// restAfter returns how long to wait after a sync that took so long: three times
// that, so that syncs use at most a quarter of one processor while changes keep
// coming. The wait is limited to 0.1 s, so syncs of more than 33 ms use more.
func restAfter(sync time.Duration) time.Duration {
	const longest = 100 * time.Millisecond
	return min(3*sync, longest)
}

// log logs a sync, at most once a second.
func (l *syncLoop) log(what string, elapsed time.Duration) {
	if time.Since(l.logged) < time.Second {
		l.quiet++
		klog.V(4).InfoS(what+" complete", "elapsed", elapsed)
		return
	}
	klog.V(2).InfoS(what+" complete", "elapsed", elapsed, "othersSinceLastLogged", l.quiet)
	l.logged, l.quiet = time.Now(), 0
}

// check checks the tables. Damage that cannot be repaired is left to the next
// sync.
func (l *syncLoop) check() {
	if time.Now().Before(l.checkAfter) {
		return
	}
	if err := l.proxier.eachBackend((*Backend).Check); err != nil {
		klog.ErrorS(err, "Failed to check the tables", "retryAfter", publishPeriod)
		l.checkAfter = time.Now().Add(publishPeriod)
		l.proxier.Sync()
	}
	if time.Since(l.published) >= publishPeriod {
		l.published = time.Now()
		l.proxier.metrics.publish(l.proxier.backends)
	}
}

// syncChanges hands over the changes and syncs.
func (p *Proxier) syncChanges() error {
	p.handOver()
	return p.sink.Sync()
}

// resync does the same, and tries again what the kernel refused. It can come
// before the first sync.
func (p *Proxier) resync() error {
	p.handOver()
	return p.eachBackend((*Backend).Resync)
}

// maxTriggers limits how many changes are remembered, for the metric
// network_programming_duration_seconds, while syncs fail. Later ones are not
// observed.
const maxTriggers = 10_000

// handOver hands the changes over to the backends.
func (p *Proxier) handOver() {
	for _, b := range p.backends {
		taken := p.tracker.takeTriggers(b.layout.family)
		room := max(0, maxTriggers-len(b.triggers))
		b.triggers = append(b.triggers, taken[:min(len(taken), room)]...)
	}
	p.tracker.handOver(p.sink, p.node.current)
}

func (p *Proxier) eachBackend(f func(*Backend) error) error {
	var errs []error
	for _, b := range p.backends {
		errs = append(errs, f(b))
	}
	return errors.Join(errs...)
}

// sleep waits for d; it returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// told asks for a sync of what was just told, unless the source does.
func (p *Proxier) told() {
	if !p.config.ExplicitSync {
		p.Sync()
	}
}

// SetService tells of a Service that is new or changed.
func (p *Proxier) SetService(svc *TranslatedService) {
	p.tracker.setService(svc)
	p.told()
}

// DeleteService tells that a Service is gone.
func (p *Proxier) DeleteService(name ServiceName) {
	p.tracker.deleteService(name)
	p.told()
}

// OnServiceAdd tells of a new Service.
func (p *Proxier) OnServiceAdd(svc *corev1.Service) { p.SetService(TranslateService(svc)) }

// OnServiceUpdate tells that a Service changed.
func (p *Proxier) OnServiceUpdate(_, svc *corev1.Service) { p.SetService(TranslateService(svc)) }

// OnServiceDelete tells that a Service is gone.
func (p *Proxier) OnServiceDelete(svc *corev1.Service) {
	p.DeleteService(ServiceName{svc.Namespace, svc.Name})
}

// OnServiceSynced tells that all Services that there are have been told.
func (p *Proxier) OnServiceSynced() {
	p.tracker.synced(&p.tracker.servicesSynced)
	p.told()
}

// SetEndpointSlice tells of an EndpointSlice that is new or changed.
func (p *Proxier) SetEndpointSlice(slice *TranslatedEndpointSlice) {
	p.tracker.setSlice(slice)
	p.told()
}

// DeleteEndpointSlice tells that an EndpointSlice is gone.
func (p *Proxier) DeleteEndpointSlice(name SliceName) {
	p.tracker.deleteSlice(name)
	p.told()
}

// OnEndpointSliceAdd tells of a new EndpointSlice.
func (p *Proxier) OnEndpointSliceAdd(slice *discoveryv1.EndpointSlice) {
	p.SetEndpointSlice(TranslateEndpointSlice(slice))
}

// OnEndpointSliceUpdate tells that an EndpointSlice changed.
func (p *Proxier) OnEndpointSliceUpdate(_, slice *discoveryv1.EndpointSlice) {
	p.SetEndpointSlice(TranslateEndpointSlice(slice))
}

// OnEndpointSliceDelete tells that an EndpointSlice is gone.
func (p *Proxier) OnEndpointSliceDelete(slice *discoveryv1.EndpointSlice) {
	p.DeleteEndpointSlice(SliceName{slice.Namespace, slice.Name})
}

// OnEndpointSlicesSynced tells that all EndpointSlices that there are have been told.
func (p *Proxier) OnEndpointSlicesSynced() {
	p.tracker.synced(&p.tracker.slicesSynced)
	p.told()
}

// OnNodeAdd tells of a node. Nodes other than this one are of no interest.
func (p *Proxier) OnNodeAdd(node *corev1.Node) { p.OnNodeUpdate(nil, node) }

// OnNodeUpdate tells that a node changed.
func (p *Proxier) OnNodeUpdate(_, node *corev1.Node) {
	if node.Name == p.config.NodeName {
		p.setNode(p.node.setObject(node))
	}
}

// OnNodeDelete tells that a node's object is gone. What it said of this node stays in force: the machine is the same.
func (p *Proxier) OnNodeDelete(node *corev1.Node) {
	if node.Name == p.config.NodeName {
		klog.InfoS("The Node object is gone", "node", klog.KObj(node))
		p.setNode(p.node.setObject(nil))
	}
}

// OnNodeSynced tells that all nodes that there are have been told.
func (p *Proxier) OnNodeSynced() { p.node.tellMissing() }

// OnServiceCIDRsChanged tells the ranges from which ClusterIPs are taken.
func (p *Proxier) OnServiceCIDRsChanged(cidrs []string) {
	p.setNode(p.node.change(func(n *Node) { n.ServiceCIDRs = prefixesOf(cidrs) }))
}

// onLocalAddresses takes note of the addresses on which NodePorts listen.
func (p *Proxier) onLocalAddresses(ips []netip.Addr) {
	p.setNode(p.node.change(func(n *Node) { n.NodePortIPs = ips }))
	p.Sync() // no source of rounds tells this
}

// setNode notes a change of what is known about this node; nil is none.
func (p *Proxier) setNode(n *Node) {
	if n != nil {
		p.tracker.nodeChanged()
		p.told()
	}
}
