package stage

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
)

// The proxies, as results and flags name them.
const (
	Upstream = "kube-proxy 1.36.3"
	// Netlink is the same kube-proxy with a newer library, which lists tables
	// through netlink, as kube-proxy 1.37 does. See test/apiserver/build.
	Netlink  = "kube-proxy with netlink listing"
	IPTables = "kube-proxy in iptables mode"
	IPVS     = "kube-proxy in ipvs mode"
	Product  = "nftproxy"
)

// AddSubjects adds the flag that selects the proxies to measure.
func AddSubjects(flags *pflag.FlagSet, to *[]string) {
	flags.StringSliceVar(to, "subjects", []string{Upstream, Netlink, Product},
		fmt.Sprintf("Proxies to measure. There are also %q and %q.", IPTables, IPVS))
}

// Programs are the programs that benchmarks run.
type Programs struct {
	// Folder has etcd, kube-apiserver and both builds of kube-proxy;
	// test/apiserver/build makes it.
	Folder string
	// Product is the program of nftproxy.
	Product string
}

// InRepository returns the programs that the Makefile builds, given the folder
// of the repository.
func InRepository(root string) Programs {
	return Programs{Folder: filepath.Join(root, ".cache/apiserver"), Product: filepath.Join(root, "bin/kube-proxy")}
}

// proxy returns the program and the mode of a proxy.
func (p Programs) proxy(name string) (path, mode string, err error) {
	switch name {
	case Product:
		return p.Product, "nftables", nil
	case Upstream:
		return filepath.Join(p.Folder, "kube-proxy"), "nftables", nil
	case Netlink:
		return filepath.Join(p.Folder, "kube-proxy-netlink"), "nftables", nil
	case IPTables:
		return filepath.Join(p.Folder, "kube-proxy"), "iptables", nil
	case IPVS:
		return filepath.Join(p.Folder, "kube-proxy"), "ipvs", nil
	}
	return "", "", fmt.Errorf("unknown proxy %q", name)
}

// Versions returns the versions of proxies.
func (p Programs) Versions(proxies []string) (map[string]string, error) {
	all := map[string]string{}
	for _, proxy := range proxies {
		path, _, err := p.proxy(proxy)
		if err != nil {
			return nil, err
		}
		out, err := exec.Command(path, "--version").Output()
		if err != nil {
			return nil, fmt.Errorf("version of %s: %w", proxy, err)
		}
		all[proxy] = strings.TrimSpace(string(out))
	}
	return all, nil
}
