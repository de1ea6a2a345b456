package tour

import (
	"github.com/nftproxy/nftproxy/test/demo/page"
	"github.com/nftproxy/nftproxy/test/demo/stage"
)

// LookAround tells how to look around in a cluster that stays.
func LookAround(to *page.Page, on *stage.Stage) {
	to.Scene("Look around")
	to.Text("The cluster stays until you press Ctrl-C here. In another terminal, as root:")
	show := func(text string, commands ...string) {
		to.Text("%s", text)
		to.Try(commands...)
	}
	show("Connect: every server says its name and whom it sees.",
		on.CommandLine("client", "bash -c 'head -1 </dev/tcp/192.0.2.80/80'"),
		on.CommandLine("toolbox", "bash -c 'head -1 </dev/tcp/fd00:96::80/80'"),
		on.CommandLine("client", "bash -c 'exec 3<>/dev/udp/192.0.2.53/53; echo >&3; head -1 <&3'"))
	show("Change something: both nodes take up what you save.",
		"$EDITOR "+on.ManifestFolder()+"/"+endpointsFile(on, "shop/web"),
		"tail -f "+on.LogFile("node1"))
	show("Look at the rules and at the connections of a node.",
		on.CommandLine("node1", "nft list table ip kube-proxy"),
		on.CommandLine("node1", "nft list map ip kube-proxy service-endpoints"),
		on.CommandLine("node1", "conntrack -L"))
	show("Go to a node, the client or a pod.", on.CommandLine("node2", "bash"))
}

// endpointsFile returns the name of the manifest of the Service's endpoints.
func endpointsFile(on *stage.Stage, service string) string {
	s, err := on.Service(service)
	if err != nil {
		return "" // a tour without that Service does not come this far
	}
	return s.EndpointsFile()
}
