package doctor

import (
	"context"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"

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
	case len(pids) == 0:
		return info("no process named kube-proxy in this network namespace, as far as this command sees processes", "")
	case len(pids) == 1:
		return ok(fmt.Sprint("one proxy: process ", pids[0]))
	}
	return fail(fmt.Sprintf("%d processes named kube-proxy (%s) change the same tables",
		len(pids), list(texts(pids), 5)),
		"end all but one: look for a DaemonSet kube-proxy beside nftproxy, a kube-proxy of k3s or RKE2, or a "+
			"unit of systemd")
}

// claim is a sign of another program that translates the addresses of Services:
// one of an interface, a file or a table.
type claim struct{ program, link, file, table string }

func claims() []claim {
	return []claim{
		{program: "Cilium (kubeProxyReplacement)", file: "/sys/fs/bpf/cilium/socketlb/links/cgroup/cil_sock4_connect"},
		{program: "Calico (eBPF data plane)", link: "bpfin.cali"},
		{program: "kube-router (service proxy)", link: "kube-dummy-if"},
		{program: "kpng", table: "k8s_svc"},
	}
}

// sign returns the sign, "" if it is absent.
func (c *claim) sign(n *node) string {
	switch {
	case c.link != "":
		if _, err := netlink.LinkByName(c.link); err == nil {
			return "interface " + c.link
		}
	case c.file != "":
		if _, err := os.Stat(n.path(c.file)); err == nil {
			return c.file
		}
	default:
		table := &nft.Table{Family: nft.IPv4, Name: c.table}
		if conn, err := nft.Open(); err == nil {
			defer conn.Close()
			if _, found, err := conn.FindTable(table); err == nil && found {
				return table.String()
			}
		}
	}
	return ""
}

// checkOtherProxies checks for other programs that serve Services.
func checkOtherProxies(_ context.Context, n *node) Finding {
	var found []string
	for _, c := range claims() {
		if sign := c.sign(n); sign != "" {
			found = append(found, c.program+": "+sign)
		}
	}
	if len(found) == 0 {
		return ok("no sign of another program that serves Services")
	}
	return warn("another program serves Services, or has left its rules",
		"disable its service proxy, or remove nftproxy from this cluster; if it was removed, restart the node").
		with(found...)
}

// checkLeftovers checks for rules of other modes of kube-proxy.
func checkLeftovers(context.Context, *node) Finding {
	found, err := leftovers.Find()
	switch {
	case len(found) > 0:
		return warn("rules of kube-proxy's mode iptables or ipvs can translate packets before nftproxy does",
			"restart nftproxy, which removes them; if they return, another kube-proxy runs in that mode").with(found...)
	case err != nil:
		return unknown(err)
	}
	return ok("no rules of other modes of kube-proxy")
}
