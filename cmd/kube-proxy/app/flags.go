package app

import (
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/proxier"
)

// flags are the command's flags, in the groups that --help shows.
type flags struct {
	groups []flagGroup

	manifests         string
	hostnameOverride  string
	clusterCIDR       string
	detectLocalMode   string
	bridgeInterface   string
	interfacePrefix   string
	masqueradeAll     bool
	nodePortAddresses []string
	metricsAddress    string
	cleanup, version  bool
	help              bool
}

type flagGroup struct {
	name string
	set  *pflag.FlagSet
}

// newFlags declares the flags. Those that kube-proxy has too have its names and meanings.
func newFlags() *flags {
	f := new(flags)
	source := f.group("Source")
	source.StringVar(&f.manifests, "manifests", "",
		"`DIR` with manifests (*.yaml, *.yml, *.json) of Services, EndpointSlices, this Node and ServiceCIDRs to serve. It is watched: changes are applied at once.")

	node := f.group("Node")
	node.StringVar(&f.hostnameOverride, "hostname-override", "",
		"`NAME` of this node, by which EndpointSlices and the Node object refer to it. Default: the host name.")
	node.StringVar(&f.detectLocalMode, "detect-local-mode", string(proxier.DetectLocalClusterCIDR),
		"`MODE` of telling this cluster's pods from other clients: ClusterCIDR, NodeCIDR (spec.podCIDRs of this Node), BridgeInterface or InterfaceNamePrefix.")
	node.StringVar(&f.clusterCIDR, "cluster-cidr", "",
		"`CIDR` of all pods, one a family, separated by a comma, for mode ClusterCIDR. Traffic from elsewhere to ClusterIPs is masqueraded.")
	node.StringVar(&f.bridgeInterface, "pod-bridge-interface", "",
		"`NAME` of the bridge that this node's pods are connected to, for mode BridgeInterface.")
	node.StringVar(&f.interfacePrefix, "pod-interface-name-prefix", "",
		"`PREFIX` of the names of this node's pod interfaces, for mode InterfaceNamePrefix.")

	services := f.group("Services")
	services.BoolVar(&f.masqueradeAll, "masquerade-all", false,
		"Masquerade all traffic to ClusterIPs.")
	services.StringSliceVar(&f.nodePortAddresses, "nodeport-addresses", nil,
		"`CIDRS` of the local addresses on which NodePorts listen (0.0.0.0/0 and ::/0: all but loopback), or primary: the addresses of the Node object. CIDRs of one family leave the other on all its addresses. Default: primary.")

	process := f.group("Process")
	process.StringVar(&f.metricsAddress, "metrics-bind-address", "127.0.0.1:10249",
		"`ADDRESS:PORT` of the server of /metrics. Empty: none.")
	process.BoolVar(&f.cleanup, "cleanup", false,
		"Remove what kube-proxy left on this node, say what that was, and exit.")
	process.BoolVar(&f.version, "version", false, "Print the version and exit.")
	process.BoolVarP(&f.help, "help", "h", false, "Print this text and exit.")
	addLogFlags(process)
	return f
}

func (f *flags) group(name string) *pflag.FlagSet {
	set := pflag.NewFlagSet(name, pflag.ContinueOnError)
	f.groups = append(f.groups, flagGroup{name, set})
	return set
}

// addLogFlags adds klog's -v.
func addLogFlags(set *pflag.FlagSet) {
	var klogFlags flag.FlagSet
	klog.InitFlags(&klogFlags)
	v := pflag.PFlagFromGoFlag(klogFlags.Lookup("v"))
	v.Usage = "`LEVEL` of detail in the log: 2 tells each sync, 4 and more is for debugging."
	set.AddFlag(v)
}

// parse reads the command line.
func (f *flags) parse(args []string) error {
	all := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	all.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	all.SortFlags = false
	all.Usage = func() {}
	for _, g := range f.groups {
		all.AddFlagSet(g.set)
	}
	if err := all.Parse(args); err != nil {
		return err
	}
	if all.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: kube-proxy takes flags only", all.Arg(0))
	}
	return nil
}

const usage = `kube-proxy serves Kubernetes Services on this node: connections to the addresses of a Service reach its
endpoints, by rules that it writes into the nftables tables "ip kube-proxy" and "ip6 kube-proxy".

Usage:
  kube-proxy --manifests DIR [flags]
  kube-proxy --cleanup
`

// printUsage explains the flags, by groups.
func (f *flags) printUsage(w io.Writer) {
	fmt.Fprint(w, usage)
	for _, g := range f.groups {
		g.set.SortFlags = false
		fmt.Fprintf(w, "\n%s flags:\n%s", g.name, g.set.FlagUsagesWrapped(100))
	}
}
