package packet

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/app"
)

// asKubeProxy is the environment variable that makes the test program the
// kube-proxy command.
const asKubeProxy = "NFTPROXY_PACKET_KUBE_PROXY"

func TestMain(m *testing.M) {
	if os.Getenv(asKubeProxy) != "" {
		os.Exit(app.Main(os.Args[1:], os.Stdout, os.Stderr))
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
