package app

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/config"
)

// Version is the version of nftproxy. The linker sets it in releases.
var Version = "v0.2.0"

// printVersion prints the version. With --version=raw it adds the build
// information.
func printVersion(w io.Writer, o *config.Options) error {
	if _, err := fmt.Fprintln(w, "nftproxy kube-proxy", Version); err != nil || o.Version != config.VersionRaw {
		return err
	}
	if _, err := fmt.Fprintf(w, "go %s %s/%s\nreplaces kube-proxy of Kubernetes %s\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, config.KubernetesVersion); err != nil {
		return err
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if _, err := fmt.Fprintf(w, "%s %s\n", s.Key, s.Value); err != nil {
				return err
			}
		}
	}
	return nil
}
