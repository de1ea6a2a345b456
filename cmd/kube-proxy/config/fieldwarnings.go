package config

import (
	"fmt"
	"reflect"
	"time"

	"k8s.io/kube-proxy/config/v1alpha1"
)

// fieldWarnings tells which fields of a file, without defaults, are set and have no effect. With mode nftables the sections of other
// modes are silently kept for the day they are needed, as in kube-proxy; with no mode they may be meant.
func fieldWarnings(c *v1alpha1.KubeProxyConfiguration) []string {
	w := new(fieldWarner)
	if c.Mode == "" {
		w.iptables(c)
		w.ipvs(&c.IPVS)
	}
	w.set("portRange", c.PortRange, "kube-proxy does not use it any more")
	w.set("windowsRunAsService", c.WindowsRunAsService, "this is not Windows")
	if !reflect.ValueOf(c.Winkernel).IsZero() {
		w.add("winkernel", "set", "this is not Windows")
	}
	return w.out
}

type fieldWarner struct{ out []string }

func (w *fieldWarner) add(field string, value any, why string) {
	w.out = append(w.out, fmt.Sprintf("%s: %v has no effect: %s", field, value, why))
}

// set warns of a field that has a value.
func (w *fieldWarner) set(field string, value any, why string) {
	if v := reflect.ValueOf(value); !v.IsZero() && (v.Kind() != reflect.Slice || v.Len() > 0) {
		w.add(field, value, why)
	}
}

// iptables warns of settings that the nftables section says otherwise.
func (w *fieldWarner) iptables(c *v1alpha1.KubeProxyConfiguration) {
	differ := func(field string, iptables, nftables any) {
		if !reflect.DeepEqual(iptables, nftables) {
			w.add("iptables."+field, iptables, fmt.Sprintf("mode is empty, which means nftables here; nftables.%s counts, %v", field, nftables))
		}
	}
	differ("masqueradeAll", c.IPTables.MasqueradeAll, c.NFTables.MasqueradeAll)
	differ("masqueradeBit", bitOr14(c.IPTables.MasqueradeBit), bitOr14(c.NFTables.MasqueradeBit))
	differ("syncPeriod", periodOr(c.IPTables.SyncPeriod.Duration, defaultSyncPeriod), periodOr(c.NFTables.SyncPeriod.Duration, defaultSyncPeriod))
	if d := c.IPTables.MinSyncPeriod.Duration; d != 0 && d != defaultMinSyncPeriod {
		differ("minSyncPeriod", d, periodOr(c.NFTables.MinSyncPeriod.Duration, DefaultMinSyncPeriod))
	}
	if p := c.IPTables.LocalhostNodePorts; p != nil && *p {
		w.add("iptables.localhostNodePorts", true, noIPTables+", where NodePorts never listen on loopback addresses")
	}
}

func (w *fieldWarner) ipvs(c *v1alpha1.KubeProxyIPVSConfiguration) {
	w.set("ipvs.syncPeriod", otherThan(c.SyncPeriod.Duration, defaultSyncPeriod), noIPVS)
	w.set("ipvs.minSyncPeriod", otherThan(c.MinSyncPeriod.Duration, defaultMinSyncPeriod), noIPVS)
	w.set("ipvs.scheduler", c.Scheduler, noIPVS)
	w.set("ipvs.excludeCIDRs", c.ExcludeCIDRs, noIPVS)
	w.set("ipvs.strictARP", c.StrictARP, noIPVS)
	w.set("ipvs.tcpTimeout", c.TCPTimeout.Duration, noIPVS)
	w.set("ipvs.tcpFinTimeout", c.TCPFinTimeout.Duration, noIPVS)
	w.set("ipvs.udpTimeout", c.UDPTimeout.Duration, noIPVS)
}

func bitOr14(bit *int32) int32 {
	if bit == nil {
		return defaultMasqueradeBit
	}
	return *bit
}

func periodOr(d, byDefault time.Duration) time.Duration {
	if d == 0 {
		return byDefault
	}
	return d
}

// otherThan is d, or 0 if it is the default.
func otherThan(d, byDefault time.Duration) time.Duration {
	if d == byDefault {
		return 0
	}
	return d
}
