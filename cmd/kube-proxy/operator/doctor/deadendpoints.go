package doctor

import (
	"context"
	"fmt"
)

// checkDeadEndpoints checks that no endpoint is ejected.
func checkDeadEndpoints(_ context.Context, n *node) Finding {
	switch {
	case n.Proxy == nil:
		return n.withoutProxy()
	case !n.Proxy.Eject && n.Proxy.HealthChecks.Endpoints == 0:
		return skipped("the proxy ejects no endpoints (--eject=false)")
	}
	var details, unsure []string
	for _, name := range n.Proxy.Blind {
		unsure = append(unsure, name+": no endpoint answers probes of this node")
	}
	ejected := 0
	for i := range n.Proxy.Families {
		f := &n.Proxy.Families[i]
		ejected += f.Ejected
		for _, name := range f.AllUsed {
			unsure = append(unsure, name+": more than half of the endpoints do not answer this node")
		}
		for _, name := range f.NoneHealthy {
			unsure = append(unsure, name+": no endpoint passes the health checks of this node")
		}
		for _, e := range f.Ejections {
			details = append(details, fmt.Sprintf("%s %s: %s", e.Name, e.Endpoint, e.Ejection))
		}
	}
	switch {
	case len(unsure) > 0:
		return warn(fmt.Sprintf("endpoints of %d service ports do not answer or fail health checks, and so many that "+
			"this node's own network is suspected; some or all of them get new connections", len(unsure)),
			"check the network of this node, and network policies that drop packets of nodes; connect to the "+
				"endpoints from this node and from another one, for example with curl").
			with(append(unsure, details...)...)
	case ejected > 0:
		return warn(fmt.Sprintf("%d endpoints are ejected: they answer neither clients nor this node, or fail health "+
			"checks", ejected),
			"check the pod of the endpoint, or its server, and its node; if it answers from other nodes, check the "+
				"route between both nodes, and network policies that drop packets of nodes").with(details...)
	}
	return ok("no endpoint is ejected")
}
