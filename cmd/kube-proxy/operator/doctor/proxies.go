package doctor

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/leftovers"
)

// checkProxies checks that exactly one proxy runs in the network namespace.
func checkProxies(ctx context.Context, n *node) Finding {
	pids, err := socket.Proxies(ctx, n.path("proc"))
	switch {
	case err != nil:
		return unknown(err)
	case len(pids) == 0 && n.ProxyError != nil && hasProxyTable():
		return fail("no proxy runs: its rules are in use, but changes of Services and endpoints have no effect: "+
			n.ProxyError.Error(), "start nftproxy, and look for the reason of its end in the log of its pod")
	case len(pids) == 0:
		return info("no process named kube-proxy in this network namespace, as far as this command sees processes", "")
	case len(pids) == 1:
		return ok(fmt.Sprint("one proxy: process ", pids[0]))
	}
	return fail(fmt.Sprintf("%d processes named kube-proxy (%s) change the same tables",
		len(pids), list(pids, 5)),
		"end all but one: look for a DaemonSet kube-proxy beside nftproxy, a kube-proxy of k3s or RKE2, or a "+
			"unit of systemd")
}

// hasProxyTable reports whether a table of nftproxy is in use.
func hasProxyTable() bool {
	return slices.ContainsFunc(families(), func(f nft.Family) bool {
		k, err := explain.OpenKernel(f)
		if err == nil {
			k.Close()
		}
		return err == nil
	})
}

func hasLink(name string) bool {
	_, err := netlink.LinkByName(name)
	return err == nil
}

func hasTable(table *nft.Table) bool {
	conn, err := nft.Open()
	if err != nil {
		return false
	}
	defer conn.Close()
	_, found, err := conn.FindTable(table)
	return err == nil && found
}

// checkOtherProxies checks for signs of other programs that translate the
// addresses of Services.
func checkOtherProxies(_ context.Context, n *node) Finding {
	const cilium = "/sys/fs/bpf/cilium/socketlb/links/cgroup/cil_sock4_connect"
	kpng := &nft.Table{Family: nft.IPv4, Name: "k8s_svc"}
	_, errCilium := os.Stat(n.path(cilium))
	var found []string
	for _, claim := range []struct {
		program, sign string
		present       bool
	}{
		{"Cilium (kubeProxyReplacement)", cilium, errCilium == nil},
		{"Calico (eBPF data plane)", "interface bpfin.cali", hasLink("bpfin.cali")},
		{"kube-router (service proxy)", "interface kube-dummy-if", hasLink("kube-dummy-if")},
		{"kpng", kpng.String(), hasTable(kpng)},
	} {
		if claim.present {
			found = append(found, claim.program+": "+claim.sign)
		}
	}
	if len(found) == 0 {
		return ok("no sign of another program that serves Services")
	}
	return warn("another program serves Services, or has left its rules",
		"disable its service proxy, or remove nftproxy from this cluster; if it was removed, restart the node").
		With(found...)
}

// checkLeftovers checks for rules of other modes of kube-proxy.
func checkLeftovers(context.Context, *node) Finding {
	found, err := leftovers.Find()
	switch {
	case len(found) > 0:
		return warn("rules of kube-proxy's mode iptables or ipvs can translate packets before nftproxy does",
			"restart nftproxy, which removes them; if they return, another kube-proxy runs in that mode").With(found...)
	case err != nil:
		return unknown(err)
	}
	return ok("no rules of other modes of kube-proxy")
}
