package app

import (
	"context"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	zpagesfeatures "k8s.io/component-base/zpages/features"
	"k8s.io/klog/v2"
	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/config"
	"github.com/nftproxy/nftproxy/healthcheck"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/informer"
	"github.com/nftproxy/nftproxy/proxier/leftovers"
	"github.com/nftproxy/nftproxy/proxier/manifest"
)

// source tells a proxier what there is, until ctx ends.
type source interface {
	Run(ctx context.Context) error
}

// server is the parts of a kube-proxy that runs.
type server struct {
	options *config.Options
	config  *v1alpha1.KubeProxyConfiguration
	client  kubernetes.Interface // nil with manifests
	events  *eventRecorder       // nil with manifests
	proxier *proxier.Proxier
	source  source
	health  *healthcheck.ProxyServer
	status  *healthcheck.HTTPServer
}

// newServer puts the parts together. What is wrong shows here, before anything on this node is changed.
func newServer(ctx context.Context, o *config.Options) (*server, error) {
	s := &server{options: o, config: o.Configuration}
	if err := checkKernel(); err != nil {
		return nil, err
	}
	pc, err := o.Proxier()
	if err != nil {
		return nil, err
	}
	if err := s.connect(&pc); err != nil {
		return nil, err
	}
	if s.proxier, err = newProxier(pc); err != nil {
		return nil, err
	}
	if err := s.setSource(pc); err != nil {
		return nil, err
	}
	return s, s.listen(ctx)
}

// connect makes the client of the API server and sets the recorder of events.
func (s *server) connect(pc *proxier.Config) error {
	if s.options.Manifests != "" {
		pc.ExplicitSync = true // the source calls Sync after each round
		return nil
	}
	client, eventClient, err := newClients(&s.config.ClientConnection, s.options.Master)
	if err != nil {
		return err
	}
	s.client, s.events = client, newEventRecorder(eventClient)
	pc.Events = s.events
	return nil
}

func (s *server) setSource(pc proxier.Config) (err error) {
	if s.client == nil {
		s.source, err = manifest.New(manifest.Config{Dir: s.options.Manifests, Handler: s.proxier})
		return err
	}
	s.source, err = informer.New(informer.Config{
		Client:       s.client,
		NodeName:     pc.NodeName,
		NeedPodCIDRs: pc.DetectLocal.Mode == proxier.DetectLocalNodeCIDR,
		ResyncPeriod: s.config.ConfigSyncPeriod.Duration,
		ServiceCIDRs: true,
		Handler:      s.proxier,
	})
	return err
}

// listen makes the servers of health and metrics and opens their ports. A port that cannot be opened is tried again later, unless the
// configuration asks for failure (bindAddressHardFail).
func (s *server) listen(ctx context.Context) (err error) {
	answers := newHealthMetrics()
	s.health, err = healthcheck.NewProxyServer(healthcheck.ProxyConfig{
		Addr:         s.config.HealthzBindAddress,
		HardFail:     s.config.BindAddressHardFail,
		Health:       s.proxier.Health,
		NodeEligible: func() bool { return s.client == nil || s.proxier.NodeEligible() }, // manifests need no Node
		OnHealthz:    answers.onHealthz,
		OnLivez:      answers.onLivez,
	})
	if err != nil {
		return err
	}
	s.status, err = newStatusServer(statusConfig{
		addr:      s.config.MetricsBindAddress,
		hardFail:  s.config.BindAddressHardFail,
		metrics:   append(answers.collectors(), s.proxier.Metrics()),
		config:    s.config,
		profiling: s.config.EnableProfiling,
		flags:     s.flagsPage(),
		statusz:   s.options.FeatureGate.Enabled(zpagesfeatures.ComponentStatusz),
	})
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

// run serves until ctx ends. The rules stay when it returns.
func (s *server) run(ctx context.Context) error {
	klog.InfoS("Starting", "version", Version, "node", s.nodeName(), "manifests", s.options.Manifests)
	group, ctx := errgroup.WithContext(ctx)
	if s.events != nil {
		if err := s.events.start(ctx); err != nil {
			return err
		}
		s.events.tellStart(s.nodeName())
		group.Go(func() error { return s.events.run(ctx) })
	}
	group.Go(func() error {
		s.proxier.SyncLoop(ctx)
		return nil
	})
	group.Go(func() error { return s.source.Run(ctx) })
	group.Go(func() error { return s.serve(ctx, s.health.HTTPServer, "FailedToStartProxierHealthcheck") })
	group.Go(func() error { return s.serve(ctx, s.status, "FailedToStartMetricServer") })
	group.Go(func() error {
		s.afterFirstSync(ctx)
		return nil
	})
	group.Go(func() error { return s.options.WatchConfigFile(ctx) })
	if err := group.Wait(); err != nil {
		return err
	}
	klog.InfoS("Ending; the rules stay in place")
	return nil
}

// flagsPage returns what /flagz shows; nil if the feature gate is off.
func (s *server) flagsPage() func() map[string]string {
	if !s.options.FeatureGate.Enabled(zpagesfeatures.ComponentFlagz) {
		return nil
	}
	return s.options.Flags
}

// serve runs an HTTP server. That it failed for good is an event of this node.
func (s *server) serve(ctx context.Context, server *healthcheck.HTTPServer, reason string) error {
	err := server.Run(ctx)
	if err != nil && s.events != nil {
		s.events.tellListenFailure(s.nodeName(), reason, err)
	}
	return err
}

// afterFirstSync removes what other modes of kube-proxy left, once our rules are in place, and gives memory that only the start needed back to the
// node.
func (s *server) afterFirstSync(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-s.proxier.Synced():
	}
	debug.FreeOSMemory()
	removeLeftovers(ctx, func() error { return leftovers.Remove(ctx) })
}

// leftoversRetry are the pauses before the removal of leftovers is tried again; they double from the first to the last.
var leftoversRetry = [...]time.Duration{10 * time.Second, 10 * time.Minute}

// removeLeftovers tries until it succeeds or ctx ends: rules that are out of date come before ours.
func removeLeftovers(ctx context.Context, remove func() error) {
	for pause := leftoversRetry[0]; ; pause = min(2*pause, leftoversRetry[1]) {
		err := remove()
		if err == nil || ctx.Err() != nil {
			return
		}
		klog.ErrorS(err, "Some of what another mode of kube-proxy left stays, and can send traffic astray", "retryAfter", pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (s *server) nodeName() string { return s.proxier.NodeName() }

// newProxier returns a proxier for both families, or for IPv4 alone on a host without IPv6.
func newProxier(config proxier.Config) (*proxier.Proxier, error) {
	if reason := withoutIPv6(); reason != "" {
		klog.InfoS("Serving IPv4 alone", "reason", reason)
		return proxier.NewProxier(config, nft.IPv4)
	}
	return proxier.NewDualStackProxier(config)
}

// withoutIPv6 says why this network namespace has no IPv6, "" if it has.
func withoutIPv6() string {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		return "the kernel has no IPv6"
	}
	disabled, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	if err == nil && strings.TrimSpace(string(disabled)) == "1" {
		return "net.ipv6.conf.all.disable_ipv6 is 1"
	}
	return ""
}
