package app

import (
	"cmp"
	"context"
	"errors"
	"os"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/config"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/kernel"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/healthcheck"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/informer"
	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
	"github.com/nftproxy/nftproxy/proxier/leftovers"
	"github.com/nftproxy/nftproxy/proxier/manifest"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// source sends API objects to a proxier until ctx ends.
type source interface {
	Run(ctx context.Context) error
}

// server is a kube-proxy that serves Services.
type server struct {
	options *config.Options
	config  *v1alpha1.KubeProxyConfiguration
	client  *apiclient.Client // nil with --manifests
	events  *eventRecorder    // nil with --manifests
	contact apiclient.Contact // with the API server
	proxier *proxier.Proxier
	source  source
	// manifests returns the state of the folder, reload reads it again. Both
	// are nil without --manifests.
	manifests func() *manifest.Status
	reload    func()
	health    *healthcheck.ProxyServer
	status    *healthcheck.HTTPServer
	answers   *answer.Answers // for the socket
	socket    *socket.Server
	detect    ruleset.DetectLocalMode
	// unset has an error for each sysctl that could not be set.
	unset []string
}

// newServer creates and connects the parts of a server. It changes nothing on
// the node, so that an invalid configuration has no effect.
func newServer(ctx context.Context, o *config.Options) (*server, error) {
	s := &server{options: o, config: o.Configuration}
	if err := kernel.Check(); err != nil {
		return nil, err
	}
	pc, err := o.Proxier()
	if err != nil {
		return nil, err
	}
	s.detect = pc.Rules.DetectLocal.Mode
	pc.NoHash, pc.NoTimeouts = noHash(), pc.Rules.RetryAfter > 0 && noTimeouts()
	if err := s.connect(&pc); err != nil {
		return nil, err
	}
	if s.proxier, err = newProxier(pc); err != nil {
		return nil, err
	}
	if err := s.setSource(pc); err != nil {
		return nil, err
	}
	s.answers, err = answer.New(answer.Config{
		Proxy: s.proxier, Version: Version, NodeEligible: s.proxier.NodeEligible,
		API: s.apiContact, Manifests: s.manifests, Setup: s.setup,
	})
	if err != nil {
		return nil, err
	}
	if s.socket, err = socket.NewServer(s.answers.Pages()); err != nil {
		return nil, err
	}
	return s, s.listen(ctx)
}

// noHash reports whether the kernel cannot hash the addresses of clients.
func noHash() bool {
	err := kernel.CheckHash()
	if err != nil {
		klog.ErrorS(err, "Failed to check whether Services can hash the addresses of clients")
	}
	return errors.Is(err, kernel.ErrNoHash)
}

// noTimeouts reports whether rules cannot set timeouts of connection tracking.
func noTimeouts() bool {
	err := kernel.CheckTimeouts()
	if err != nil {
		klog.ErrorS(err, "New connections without an answer keep their endpoint, although --retry-after is not 0")
	}
	return err != nil
}

// apiContact returns the contact with the API server for the command nftproxy,
// nil with --manifests.
func (s *server) apiContact() *apiclient.ContactState {
	if s.client == nil {
		return nil
	}
	state := s.contact.State()
	return &state
}

// setup describes the configuration, for the command nftproxy.
func (s *server) setup() answer.Setup {
	return answer.Setup{
		HealthzBindAddress: s.config.HealthzBindAddress, MetricsBindAddress: s.config.MetricsBindAddress,
		UnsetSysctls: s.unset, ConfigFile: (*answer.FileProblem)(s.options.FileProblem()),
	}
}

// connect creates the client of the API server and the recorder of events.
func (s *server) connect(pc *proxier.Config) error {
	if s.options.Manifests != "" {
		pc.ExplicitSync = true // the manifest source calls Sync
		pc.NodeOptional = true
		pc.HealthChecks = true
		return nil
	}
	client, eventClient, err := newClients(&s.config.ClientConnection, s.options.Master, &s.contact)
	if err != nil {
		return err
	}
	s.client, s.events = client, newEventRecorder(eventClient.Events)
	pc.Events = s.events
	return nil
}

func (s *server) setSource(pc proxier.Config) (err error) {
	if s.client == nil {
		source, err := manifest.New(manifest.Config{Dir: s.options.Manifests, Handler: s.proxier})
		if err == nil {
			s.source, s.manifests, s.reload = source, source.Status, source.Reload
		}
		return err
	}
	s.source, err = informer.New(informer.Config{
		Client:       s.client,
		NodeName:     pc.NodeName,
		NeedPodCIDRs: pc.Rules.DetectLocal.Mode == ruleset.DetectLocalNodeCIDR,
		ResyncPeriod: s.config.ConfigSyncPeriod.Duration,
		Handler:      s.proxier,
	})
	return err
}

// listen creates the HTTP servers and opens their ports. A port that is in
// use is an error only with bindAddressHardFail; otherwise the server
// retries.
func (s *server) listen(ctx context.Context) (err error) {
	healthz, onHealthz := newAnswersTotal("healthz")
	livez, onLivez := newAnswersTotal("livez")
	s.health, err = healthcheck.NewProxyServer(healthcheck.ProxyConfig{
		Addr:         s.config.HealthzBindAddress,
		HardFail:     s.config.BindAddressHardFail,
		Health:       s.proxier.Health,
		NodeEligible: s.proxier.NodeEligible,
		OnHealthz:    onHealthz,
		OnLivez:      onLivez,
	})
	if err != nil {
		return err
	}
	metrics := []prometheus.Collector{healthz, livez, s.proxier.Metrics(), contactMetrics{&s.contact},
		newConfigInvalid(s.options)}
	if s.manifests != nil {
		metrics = append(metrics, newManifestProblems(s.manifests))
	}
	s.status, err = newStatusServer(s.options, metrics...)
	if err != nil {
		return err
	}
	for _, server := range []*healthcheck.HTTPServer{s.health.HTTPServer, s.status} {
		if err := server.Listen(ctx); err != nil && s.config.BindAddressHardFail {
			return err
		}
	}
	return nil
}

// drainTimeout limits the time for connections to NodePorts on localhost to end
// when the process ends. It is less than the grace period of a pod, 30 s.
const drainTimeout = 20 * time.Second

// run serves until ctx ends or a part fails. Then it drains the connections to
// NodePorts on localhost, while all other parts continue. The rules remain in
// place. Each value of hangups is a SIGHUP.
func (s *server) run(ctx context.Context, hangups <-chan os.Signal) error {
	klog.InfoS("Starting kube-proxy", "version", Version, "node", s.nodeName(), "manifests", s.options.Manifests)
	group, stopping := errgroup.WithContext(ctx)
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group.Go(func() error {
		<-stopping.Done()
		s.drain()
		stop()
		return nil
	})
	run := func(part func(context.Context)) {
		group.Go(func() error {
			part(ctx)
			return nil
		})
	}
	if s.events != nil {
		s.events.recordStart(s.nodeName())
		run(s.events.run)
	}
	run(s.proxier.SyncLoop)
	group.Go(func() error { return s.source.Run(ctx) })
	run(func(ctx context.Context) { s.onHangups(ctx, hangups) })
	run(s.socket.Run)
	group.Go(func() error { return s.serve(ctx, s.health.HTTPServer, "FailedToStartProxierHealthcheck") })
	group.Go(func() error { return s.serve(ctx, s.status, "FailedToStartMetricServer") })
	run(s.afterFirstSync)
	group.Go(func() error { return s.options.WatchConfigFile(ctx) })
	if err := group.Wait(); err != nil {
		return err
	}
	klog.InfoS("Stopped kube-proxy, leaving the rules in place")
	return nil
}

// onHangups reads the manifests again at each SIGHUP. With an API server there
// is nothing to read again, and the signal has no effect.
func (s *server) onHangups(ctx context.Context, hangups <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		}
		if s.reload == nil {
			klog.InfoS("Ignored SIGHUP: changes of the API server and of the configuration file are detected anyway")
			continue
		}
		s.reload()
	}
}

// drain drains the connections to NodePorts on localhost.
func (s *server) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	s.proxier.Drain(ctx)
}

// serve runs an HTTP server until ctx ends. If the server fails, it records
// an event of this node.
func (s *server) serve(ctx context.Context, server *healthcheck.HTTPServer, reason string) error {
	err := server.Run(ctx)
	if err != nil && s.events != nil {
		s.events.recordServerFailure(s.nodeName(), reason, err)
	}
	return err
}

// afterFirstSync waits for the first sync. Then it limits the growth of the
// heap, returns unused memory to the node and removes the rules of kube-proxy's
// other modes.
func (s *server) afterFirstSync(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-s.proxier.Synced():
	}
	s.logStart()
	setHeapGrowth(heapGrowth)
	debug.FreeOSMemory()
	removeLeftovers(ctx, func() error { return leftovers.Remove(ctx) })
}

// logStart logs that the start is complete. The numbers of Services and
// endpoints have one value for each family.
func (s *server) logStart() {
	status := s.proxier.Status()
	var families []string
	var services, endpoints []int
	for i := range status.Families {
		f := &status.Families[i]
		families = append(families, f.Family.Name())
		services, endpoints = append(services, f.Services), append(endpoints, f.Endpoints)
	}
	klog.InfoS("Serving Services", "version", Version, "node", s.nodeName(),
		"detectLocalMode", cmp.Or(s.detect, "none"), "ipFamilies", families, "services", services,
		"endpoints", endpoints, "elapsed", time.Since(status.Started).Round(time.Millisecond))
}

// minLeftoversRetry and maxLeftoversRetry bound the pause before another
// attempt to remove leftovers. It doubles after each attempt.
const (
	minLeftoversRetry = 10 * time.Second
	maxLeftoversRetry = 10 * time.Minute
)

// removeLeftovers calls remove until it succeeds or ctx ends. It retries
// because iptables rules of another mode can apply to a packet before our
// rules do.
func removeLeftovers(ctx context.Context, remove func() error) {
	for pause := minLeftoversRetry; ; pause = min(2*pause, maxLeftoversRetry) {
		err := remove()
		if err == nil || ctx.Err() != nil {
			return
		}
		klog.ErrorS(err, "Failed to remove all rules of another kube-proxy mode; they may misroute traffic",
			"retryAfter", pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (s *server) nodeName() string { return s.proxier.NodeName() }
