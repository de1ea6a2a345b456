package benchmark

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
)

// The proxies that are measured.
const (
	Upstream = "kube-proxy"
	Product  = "nftproxy"
)

// Programs are where the programs are.
type Programs struct {
	// Product is the path of nftproxy's program.
	Product string
	// Folder has the others, as test/apiserver/build makes it.
	Folder string
}

// Path returns the path of a proxy's program.
func (p Programs) Path(proxy string) string {
	if proxy == Product {
		return p.Product
	}
	return filepath.Join(p.Folder, proxy)
}

// Versions asks the proxies for theirs.
func (p Programs) Versions(proxies []string) (map[string]string, error) {
	all := map[string]string{}
	for _, proxy := range proxies {
		out, err := exec.Command(p.Path(proxy), "--version").Output()
		if err != nil {
			return nil, fmt.Errorf("version of %s: %w", proxy, err)
		}
		all[proxy] = strings.TrimSpace(string(out))
	}
	return all, nil
}

// AddFlags adds the flags that say where they are.
func (p *Programs) AddFlags(to *pflag.FlagSet) {
	to.StringVar(&p.Product, "nftproxy", "bin/kube-proxy", "nftproxy's `PROGRAM`.")
	to.StringVar(&p.Folder, "programs", ".cache/apiserver", "`FOLDER` of etcd, kube-apiserver and kube-proxy, as test/apiserver/build makes it.")
}

// MakeAbsolute makes their paths independent of the working directory.
func (p *Programs) MakeAbsolute() (err error) {
	if p.Product, err = filepath.Abs(p.Product); err != nil {
		return err
	}
	p.Folder, err = filepath.Abs(p.Folder)
	return err
}
