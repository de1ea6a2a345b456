package config

import (
	"cmp"
	"fmt"
	"reflect"
	"time"

	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"
)

// fieldWarnings returns a warning for each field of a file, before defaults,
// that is set and has no effect. With mode nftables it ignores the sections
// of other modes, as kube-proxy does, except for schedulers of IPVS that have a
// successor. With an empty mode it warns about them, because kube-proxy would
// use them.
func fieldWarnings(c *v1alpha1.KubeProxyConfiguration) []string {
	w := new(fieldWarner)
	if c.Mode == "" {
		w.iptables(c)
		w.ipvs(&c.IPVS)
	} else if successor := schedulerSuccessor(c.IPVS.Scheduler); successor != "" {
		w.set("ipvs.scheduler", c.IPVS.Scheduler, noIPVS+successor)
	}
	w.set("portRange", c.PortRange, "kube-proxy no longer uses it")
	w.set("windowsRunAsService", c.WindowsRunAsService, noWindows)
	if !reflect.ValueOf(c.Winkernel).IsZero() {
		w.out = append(w.out, "winkernel has no effect: "+noWindows)
	}
	return w.out
}

type fieldWarner struct{ out []string }

func (w *fieldWarner) add(field string, value any, why string) {
	w.out = append(w.out, fmt.Sprintf("%s: %v has no effect: %s", field, value, why))
}

// set adds a warning if a field has a value.
func (w *fieldWarner) set(field string, value any, why string) {
	if v := reflect.ValueOf(value); !v.IsZero() && (v.Kind() != reflect.Slice || v.Len() > 0) {
		w.add(field, value, why)
	}
}

// iptables adds a warning for each field that differs from the nftables
// section.
func (w *fieldWarner) iptables(c *v1alpha1.KubeProxyConfiguration) {
	differ := func(field string, iptables, nftables any) {
		if !reflect.DeepEqual(iptables, nftables) {
			w.add("iptables."+field, iptables,
				fmt.Sprintf("an empty mode means nftables, and nftables.%s is %v", field, nftables))
		}
	}
	differ("masqueradeAll", c.IPTables.MasqueradeAll, c.NFTables.MasqueradeAll)
	differ("masqueradeBit", masqueradeBit(c.IPTables.MasqueradeBit), masqueradeBit(c.NFTables.MasqueradeBit))
	differ("syncPeriod", cmp.Or(c.IPTables.SyncPeriod.Duration, defaultSyncPeriod),
		cmp.Or(c.NFTables.SyncPeriod.Duration, defaultSyncPeriod))
	if d := c.IPTables.MinSyncPeriod.Duration; d != 0 && d != defaultIPTablesMinSyncPeriod {
		differ("minSyncPeriod", d, cmp.Or(c.NFTables.MinSyncPeriod.Duration, defaultMinSyncPeriod))
	}
	if p := c.IPTables.LocalhostNodePorts; p != nil && *p {
		w.add("iptables.localhostNodePorts", true, noLocalhostNodePort)
	}
}

func (w *fieldWarner) ipvs(c *v1alpha1.KubeProxyIPVSConfiguration) {
	w.set("ipvs.syncPeriod", zeroIf(c.SyncPeriod.Duration, defaultSyncPeriod), noIPVS)
	w.set("ipvs.minSyncPeriod", zeroIf(c.MinSyncPeriod.Duration, defaultIPTablesMinSyncPeriod), noIPVS)
	w.set("ipvs.scheduler", c.Scheduler, noIPVS+schedulerSuccessor(c.Scheduler))
	w.set("ipvs.excludeCIDRs", c.ExcludeCIDRs, noIPVS)
	w.set("ipvs.strictARP", c.StrictARP, noIPVS)
	w.set("ipvs.tcpTimeout", c.TCPTimeout.Duration, noIPVS)
	w.set("ipvs.tcpFinTimeout", c.TCPFinTimeout.Duration, noIPVS)
	w.set("ipvs.udpTimeout", c.UDPTimeout.Duration, noIPVS)
}

func masqueradeBit(bit *int32) int32 { return ptr.Deref(bit, defaultMasqueradeBit) }

// zeroIf returns d, or 0 if d is the default.
func zeroIf(d, byDefault time.Duration) time.Duration {
	if d == byDefault {
		return 0
	}
	return d
}
