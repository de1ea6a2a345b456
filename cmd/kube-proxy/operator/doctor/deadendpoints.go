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
	const compared = ": compared its endpoints with each other: "
	var details, unsure []string
	for _, name := range n.Proxy.Blind {
		unsure = append(unsure, name+compared+"none answers probes of this node")
	}
	ejected := 0
	for i := range n.Proxy.Families {
		f := &n.Proxy.Families[i]
		ejected += f.Ejected
		for _, name := range f.AllUsed {
			unsure = append(unsure, name+compared+"more than half do not answer this node")
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
		return warn(fmt.Sprintf("most endpoints of %d service ports do not answer on their port, or fail health "+
			"checks, so some or all of these get new connections", len(unsure)),
			"if the pods answer on other ports (the check endpoints compares them), look at the process that should "+
				"listen and at network policies; otherwise at the network of this node: connect to the endpoints from "+
				"this node and from another one, for example with curl").
			With(append(unsure, details...)...)
	case ejected > 0:
		return warn(fmt.Sprintf("%d endpoints are ejected: they answer neither clients nor this node, or fail health "+
			"checks", ejected),
			"check the pod of the endpoint, or its server, and its node; if it answers from other nodes, check the "+
				"route between both nodes, and network policies that drop packets of nodes").With(details...)
	}
	return ok("no endpoint is ejected")
}
