package doctor

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
	"github.com/nftproxy/nftproxy/proxier/leftovers"
)

// checkProxies checks that exactly one proxy runs in the network namespace.
func checkProxies(ctx context.Context, n *host) Finding {
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
		k, err := node.OpenKernel(f)
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
func checkOtherProxies(_ context.Context, n *host) Finding {
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
func checkLeftovers(context.Context, *host) Finding {
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

// ofAPI returns a check of the proxy's contact with the API server.
func ofAPI(run func(n *host, api *apiclient.ContactState) Finding) func(context.Context, *host) Finding {
	return func(_ context.Context, n *host) Finding {
		switch {
		case n.Proxy == nil:
			return n.withoutProxy()
		case n.Proxy.API == nil:
			return skipped("the proxy serves manifests, without an API server")
		}
		return run(n, n.Proxy.API)
	}
}

// checkAPIServer checks that the API server answers the proxy.
func checkAPIServer(n *host, api *apiclient.ContactState) Finding {
	const remedy = "check the address of the API server in the kubeconfig (clientConnection.kubeconfig), and the " +
		"route to it; existing rules keep working, but changes of Services and endpoints do not arrive"
	switch silence := n.age(api.Answered); {
	case api.Answered.IsZero() && api.Failed.IsZero():
		return skipped("the proxy has not sent a request yet")
	case api.Answered.IsZero() && api.ViaService:
		return fail("the API server has never answered at the ClusterIP of the Service kubernetes, which needs the "+
			"rules of a service proxy: "+api.Error, "set an address that works without these rules, such as the "+
			"address of a control-plane node or of its load balancer (apiServer of the chart, or the kubeconfig)")
	case api.Answered.IsZero():
		return fail("the API server has never answered: "+api.Error, remedy)
	case api.Failed.After(api.Answered):
		return fail(fmt.Sprintf("the API server has not answered for %s: %s", silence, api.Error), remedy)
	}
	if why := api.Trouble(); why != "" {
		finding := warn(why, "401: check the token or certificate of the proxy; 403: compare its ClusterRole with the "+
			"one in deploy/kustomize/base/rbac.yaml; from 500 on: read the log of the API server")
		for resource := range api.Refused {
			if resource != "servicecidrs" { // without these, Services work
				finding.Result = Fail
			}
		}
		return finding
	}
	return ok("the API server answers")
}

// age returns the time from another one to the answer of the proxy.
func (n *host) age(since time.Time) time.Duration { return n.Proxy.Time.Sub(since).Round(time.Second) }

// maxSilence is how long a watch can be silent. The API server sends a bookmark
// about every minute, but none before the resource has changed since the API
// server started. The client opens a new watch after 5 to 10 minutes.
const maxSilence = 11 * time.Minute

// checkWatch checks that the watches deliver changes.
func checkWatch(n *host, api *apiclient.ContactState) Finding {
	if len(api.Heard) == 0 {
		return skipped("the proxy has no watch yet")
	}
	oldest := time.Duration(0)
	for _, resource := range slices.Sorted(maps.Keys(api.Heard)) {
		silence := n.age(api.Heard[resource])
		oldest = max(oldest, silence)
		if silence > maxSilence {
			return warn(fmt.Sprintf("the watch of %s has been silent for %s", resource, silence),
				"look for a load balancer or proxy before the API server that keeps dead connections; "+
					"restarting nftproxy opens new ones")
		}
	}
	return ok(fmt.Sprintf("all watches were heard in the last %s", oldest))
}

// maxAhead is the difference of the clocks that is reported. Tokens and
// certificates fail with differences of minutes.
const maxAhead = 10 * time.Second

// checkClock compares the clock with the API server, or reports whether
// it is synchronized.
func checkClock(_ context.Context, n *host) Finding {
	const remedy = "run chrony, systemd-timesyncd or another NTP client on the node"
	if n.Proxy != nil && n.Proxy.API != nil && !n.Proxy.API.Compared.IsZero() {
		ahead := time.Duration(n.Proxy.API.AheadSeconds * float64(time.Second))
		if ahead.Abs() <= maxAhead {
			return ok(fmt.Sprintf("the clock differs from the clock of the API server by %s", ahead.Abs()))
		}
		direction := "behind"
		if ahead < 0 {
			direction = "ahead of"
		}
		return warn(fmt.Sprintf("this node's clock is %s %s the clock of the API server: certificates and tokens "+
			"can be refused", ahead.Abs(), direction), remedy)
	}
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		return unknown(err)
	}
	if t.Status&unix.STA_UNSYNC != 0 {
		return info("the kernel's clock is not synchronized: no NTP client has set it", remedy)
	}
	return ok("the clock is synchronized")
}

// checkConfiguration checks that the configuration file is in effect.
func checkConfiguration(_ context.Context, n *host) Finding {
	switch {
	case n.Proxy == nil:
		return n.withoutProxy()
	case n.Proxy.ConfigFile == nil:
		return ok("the configuration is in effect")
	}
	problem := n.Proxy.ConfigFile
	return warn(fmt.Sprintf("%s has changed and cannot be used: the proxy has kept its configuration for %s, and "+
		"cannot start again", problem.File, n.age(problem.Since)), "correct the file").With(problem.Error)
}

// checkManifests checks that all manifests are served as they are.
func checkManifests(_ context.Context, n *host) Finding {
	switch {
	case n.Proxy == nil:
		return n.withoutProxy()
	case n.Proxy.Manifests == nil:
		return skipped("the proxy serves an API server, without manifests")
	}
	m := n.Proxy.Manifests
	if m.ProblemCount == 0 {
		return ok(fmt.Sprintf("%d manifests with %d objects in %s are valid", m.Files, m.Objects, m.Dir))
	}
	const limit = 20
	var details []string
	for _, p := range m.Problems[:min(len(m.Problems), limit)] {
		details = append(details, fmt.Sprintf("%s; for %s", p.Text, n.age(p.Since)))
	}
	if more := m.ProblemCount - len(details); more > 0 {
		details = append(details, fmt.Sprintf("and %d more", more))
	}
	return fail(fmt.Sprintf("problems in %s (%d): objects are not served, or in an earlier version",
		m.Dir, m.ProblemCount),
		"correct the files, and validate them with nftproxy check; a change takes effect within a second").
		With(details...)
}
