package packet

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/app"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator"
)

// asKubeProxy and asNftproxy are environment variables that make the test
// program the command kube-proxy or nftproxy.
const (
	asKubeProxy = "NFTPROXY_PACKET_KUBE_PROXY"
	asNftproxy  = "NFTPROXY_PACKET_NFTPROXY"
)

func TestMain(m *testing.M) {
	if os.Getenv(asKubeProxy) != "" {
		os.Exit(app.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	if os.Getenv(asNftproxy) != "" {
		os.Exit(operator.Main(operator.Config{Stdout: os.Stdout, Stderr: os.Stderr}, os.Args[1:]))
	}
	if err := runInParallel(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// runInParallel sets the default of -test.parallel. More tests than
// processors can run at the same time because they wait most of the time.
func runInParallel() error {
	flag.Parse()
	const parallel = "test.parallel"
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == parallel })
	if set {
		return nil
	}
	return flag.Set(parallel, "6")
}
