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
	// Counting is nftproxy that counts the connections to each Service.
	Counting = "nftproxy with --service-metrics=all"
)

// AddSubjects adds the flag that selects the proxies to measure.
func AddSubjects(flags *pflag.FlagSet, to *[]string) {
	flags.StringSliceVar(to, "subjects", []string{Upstream, Netlink, Product},
		fmt.Sprintf("Proxies to measure. There are also %q, %q and %q.", Counting, IPTables, IPVS))
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

// program is a program with the mode and the flags of a proxy.
type program struct {
	path, mode string
	flags      []string
}

func (p Programs) proxy(name string) (program, error) {
	upstream := filepath.Join(p.Folder, "kube-proxy")
	found, ok := map[string]program{
		Product:  {path: p.Product, mode: "nftables"},
		Counting: {path: p.Product, mode: "nftables", flags: []string{"--service-metrics=all"}},
		Upstream: {path: upstream, mode: "nftables"},
		Netlink:  {path: upstream + "-netlink", mode: "nftables"},
		IPTables: {path: upstream, mode: "iptables"},
		IPVS:     {path: upstream, mode: "ipvs"},
	}[name]
	if !ok {
		return found, fmt.Errorf("unknown proxy %q", name)
	}
	return found, nil
}

// Versions returns the versions of proxies.
func (p Programs) Versions(proxies []string) (map[string]string, error) {
	all := map[string]string{}
	for _, proxy := range proxies {
		program, err := p.proxy(proxy)
		if err != nil {
			return nil, err
		}
		out, err := exec.Command(program.path, "--version").Output()
		if err != nil {
			return nil, fmt.Errorf("version of %s: %w", proxy, err)
		}
		all[proxy] = strings.TrimSpace(string(out))
	}
	return all, nil
}
