package app

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/config"
	"github.com/nftproxy/nftproxy/conntrack"
)

// setUpNode sets on this node what the configuration asks for besides rules: the limits of connection tracking, and how soon the kernel ends this process
// when memory runs out. The former take a writable /proc/sys; with --init-only that is all that is done. A machine without a cluster keeps its
// limits unless a configuration file gives others.
func setUpNode(o *config.Options) error {
	if o.Manifests == "" || o.ConfigFile != "" {
		loadConntrack()
		outcome, err := conntrackSettings(&o.Configuration.Conntrack).Apply("/")
		for _, c := range outcome.Changed {
			klog.InfoS("Changed a setting of connection tracking", "file", c.File, "from", c.From, "to", c.To)
		}
		if err != nil {
			return err
		}
		if outcome.Warning != nil {
			klog.InfoS("Connection tracking can be slower than need be", "err", outcome.Warning)
		}
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
