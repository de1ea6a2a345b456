package app

import (
	"errors"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/config"
	"github.com/nftproxy/nftproxy/conntrack"
)

// initNode does what takes all privileges (--init-only): it sets the limits of connection tracking, which takes a writable /proc/sys.
func initNode(o *config.Options) error {
	if o.Manifests != "" && o.ConfigFile == "" {
		return nil // a machine without a cluster keeps its limits unless a configuration file gives others
	}
	loadConntrack()
	outcome, err := conntrackSettings(&o.Configuration.Conntrack).Apply("/")
	for _, c := range outcome.Changed {
		klog.InfoS("Changed a setting of connection tracking", "file", c.File, "from", c.From, "to", c.To)
	}
	if outcome.Warning != nil {
		klog.InfoS("Connection tracking can be slower than need be", "err", outcome.Warning)
	}
	return err
}

// setUpNode sets on this node what the configuration asks for besides rules, before they are written. Where the limits of connection tracking
// cannot be written, as in a container with few privileges, they are wrong after a change of the configuration until an init container
// sets them: Services are served all the same.
func setUpNode(o *config.Options) error {
	err := initNode(o)
	switch {
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		klog.ErrorS(err, "A limit of connection tracking is not as the configuration asks")
	case err != nil:
		return err
	}
	applyOOMScore(o.Configuration.OOMScoreAdj)
	return nil
}

// loadConntrack has the kernel load connection tracking, if it is a module: its settings are not there before. A request is enough. What comes of it
// shows when the settings are looked for.
func loadConntrack() {
	conn, err := conntrack.Open()
	if err != nil {
		return
	}
	defer conn.Close()
	if _, err := conn.Entries(); err != nil {
		klog.V(2).InfoS("Connection tracking does not answer", "err", err)
	}
}

func conntrackSettings(c *v1alpha1.KubeProxyConntrackConfiguration) conntrack.Settings {
	duration := func(d *metav1.Duration) time.Duration { return ptr.Deref(d, metav1.Duration{}).Duration }
	return conntrack.Settings{
		MaxPerCore:            int(ptr.Deref(c.MaxPerCore, 0)),
		Min:                   int(ptr.Deref(c.Min, 0)),
		TCPEstablishedTimeout: duration(c.TCPEstablishedTimeout),
		TCPCloseWaitTimeout:   duration(c.TCPCloseWaitTimeout),
		TCPBeLiberal:          c.TCPBeLiberal,
		UDPTimeout:            c.UDPTimeout.Duration,
		UDPStreamTimeout:      c.UDPStreamTimeout.Duration,
	}
}
