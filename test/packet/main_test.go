package packet

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/app"
)

// asKubeProxy in the environment makes the test program the kube-proxy command.
const asKubeProxy = "NFTPROXY_PACKET_KUBE_PROXY"

func TestMain(m *testing.M) {
	if os.Getenv(asKubeProxy) != "" {
		os.Exit(app.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	if err := waitTogether(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// waitTogether runs more tests at the same time than there are processors, unless a flag says how many: most of the time
// they wait for something.
func waitTogether() error {
	flag.Parse()
	const parallel = "test.parallel"
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == parallel })
	if given {
		return nil
	}
	return flag.Set(parallel, "6")
}
