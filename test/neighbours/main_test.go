package neighbours

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/app"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator"
)

// asProgram is the environment variable that makes the test program one of the
// two commands.
const asProgram = "NFTPROXY_NEIGHBOURS_PROGRAM"

// roots is the folder with root file systems of Debian releases.
const roots = "../../.cache/neighbours"

func TestMain(m *testing.M) {
	switch os.Getenv(asProgram) {
	case "kube-proxy":
		os.Exit(app.Main(os.Args[1:], os.Stdout, os.Stderr))
	case "nftproxy":
		os.Exit(operator.Main(operator.Config{Stdout: os.Stdout, Stderr: os.Stderr}, os.Args[1:]))
	}
	flag.Parse()
	setup := exec.Command("./setup", roots)
	setup.Stdout, setup.Stderr = os.Stderr, os.Stderr
	if err := setup.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "setup:", err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}
