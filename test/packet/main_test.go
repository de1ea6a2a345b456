package packet

import (
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
	os.Exit(m.Run())
}
