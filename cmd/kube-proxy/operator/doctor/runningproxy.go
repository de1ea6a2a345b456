package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// ofAPI returns a check of the proxy's contact with the API server.
func ofAPI(run func(n *node, api *apiclient.ContactState) Finding) func(context.Context, *node) Finding {
	return func(_ context.Context, n *node) Finding {
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
func checkAPIServer(n *node, api *apiclient.ContactState) Finding {
	const remedy = "check the address of the API server in the kubeconfig (clientConnection.kubeconfig), and the " +
		"route to it; existing rules keep working, but changes of Services and endpoints do not arrive"
	switch silence := n.age(api.Answered); {
	case api.Answered.IsZero() && api.Failed.IsZero():
		return skipped("the proxy has not sent a request yet")
	case api.Answered.IsZero() && api.ViaService:
		return fail("the API server has never answered at the ClusterIP of the Service kubernetes, which needs the "+
			"rules of a service proxy: "+api.Error, "set an address that works without them, such as that of a "+
			"control-plane node or of the load balancer before it (apiServer of the chart, or the kubeconfig)")
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
func (n *node) age(since time.Time) time.Duration { return n.Proxy.Time.Sub(since).Round(time.Second) }

// maxSilence is how long a watch can be silent. The API server sends a bookmark
// about every minute, but none before the resource has changed since the API
// server started. The client opens a new watch after 5 to 10 minutes.
const maxSilence = 11 * time.Minute

// checkWatch checks that the watches deliver changes.
func checkWatch(n *node, api *apiclient.ContactState) Finding {
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
func checkClock(_ context.Context, n *node) Finding {
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

// checkSourceRanges checks that loadBalancerSourceRanges restrict the
// LoadBalancer IPs of both families.
func checkSourceRanges(ctx context.Context, n *node) Finding {
	if n.Proxy == nil || n.Services == nil {
		return n.withoutProxy()
	}
	const limit = 20
	var details []string
	for s, err := range n.Services(ctx) {
		if err != nil {
			return unknown(err)
		}
		if addrs := unrestrictedIPs(s); len(addrs) > 0 {
			details = append(details, fmt.Sprintf("%s/%s: %s", s.Namespace, s.Name, list(addrs, limit)))
		}
	}
	count := len(details)
	if count == 0 {
		return ok("loadBalancerSourceRanges restrict all LoadBalancer IPs of their Services")
	}
	if count > limit {
		details = append(details[:limit], fmt.Sprintf("and %d more Services", count-limit))
	}
	return warn(fmt.Sprintf("%d Services have loadBalancerSourceRanges of one family only: all clients of the other "+
		"family may use these LoadBalancer IPs", count),
		"add ranges of the other family to loadBalancerSourceRanges; 0.0.0.0/0 or ::/0 allows all its clients").
		With(details...)
}

// unrestrictedIPs returns the LoadBalancer IPs of a family without a range.
func unrestrictedIPs(s *table.ServiceView) []string {
	var addrs []string
	for _, p := range s.Ports {
		for _, f := range p.Frontends {
			if f.Kind == ruleset.LoadBalancerIP && s.Unrestricted(f.Family) {
				addrs = append(addrs, f.Address.String())
			}
		}
	}
	slices.Sort(addrs)
	return slices.Compact(addrs)
}
