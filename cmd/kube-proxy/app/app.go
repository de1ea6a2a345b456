package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/manifest"
)

// Version is the version of the product. Releases set it when linking.
var Version = "v0.1.0-dev"

// Main runs the command with these arguments and returns its exit code: 0 when it did what was asked, or ended by SIGTERM or SIGINT, 1 on
// an error, 2 on a wrong command line.
func Main(args []string, stdout, stderr io.Writer) int {
	f := newFlags()
	if err := f.parse(args); err != nil {
		fmt.Fprintf(stderr, "kube-proxy: %v\nkube-proxy --help explains the flags.\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	defer klog.Flush()
	switch {
	case f.help:
		f.printUsage(stdout)
		return 0
	case f.version:
		fmt.Fprintln(stdout, "nftproxy kube-proxy", Version)
		return 0
	case f.cleanup:
		if proxier.CleanupLeftovers(ctx) {
			return 1
		}
		return 0
	}
	if f.manifests == "" {
		fmt.Fprintln(stderr, "kube-proxy: nothing to serve: --manifests DIR says where the Services are")
		return 2
	}
	if err := run(ctx, f); err != nil {
		if errors.Is(err, syscall.EPERM) {
			err = fmt.Errorf("%w (kube-proxy needs root, or CAP_NET_ADMIN)", err)
		}
		fmt.Fprintf(stderr, "kube-proxy: %v\n", err)
		return 1
	}
	return 0
}

// run serves until ctx ends. The rules stay when it returns.
func run(ctx context.Context, f *flags) error {
	config, err := f.config()
	if err != nil {
		return err
	}
	klog.InfoS("Starting", "version", Version, "node", config.NodeName, "manifests", f.manifests)
	if config.DetectLocal.Mode == proxier.DetectLocalClusterCIDR && len(config.DetectLocal.ClusterCIDRs) == 0 {
		klog.InfoS("No --cluster-cidr is given: traffic from outside the cluster to ClusterIPs is not masqueraded")
	}
	config.ExplicitSync = true // the manifests are told in rounds
	p, err := newProxier(config)
	if err != nil {
		return err
	}
	defer p.Close()
	status, err := newStatusServer(statusConfig{addr: f.metricsAddress, metrics: []prometheus.Collector{p.Metrics()}})
	if err != nil {
		return err
	}
	source := manifest.New(manifest.Config{Dir: f.manifests, Handler: p})
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		p.SyncLoop(ctx)
		return nil
	})
	group.Go(func() error { return source.Run(ctx) })
	group.Go(func() error { return status.Run(ctx) })
	if err := group.Wait(); err != nil {
		return err
	}
	klog.InfoS("Ending; the rules stay in place")
	return nil
}

// newProxier returns a proxier for both families, or for IPv4 alone on a host without IPv6.
func newProxier(config proxier.Config) (*proxier.Proxier, error) {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		klog.InfoS("This host has no IPv6: serving IPv4 alone")
		return proxier.NewProxier(config, nft.IPv4)
	}
	return proxier.NewDualStackProxier(config)
}
