package app

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/proxier"
)

func runMain(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = Main(args, &out, &err)
	return code, out.String(), err.String()
}

func TestWrongCommandLines(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--no-such-flag"}, 2, "unknown flag: --no-such-flag"},
		{[]string{"serve"}, 2, `unexpected argument "serve": kube-proxy takes flags only`},
		{nil, 2, "nothing to serve: --manifests DIR says where the Services are"},
		{[]string{"--manifests", "d", "--cluster-cidr", "10.0.0.0/8,x"}, 1, `--cluster-cidr: "x" is not a CIDR`},
		{[]string{"--manifests", "d", "--nodeport-addresses", "primary,10.0.0.0/8"}, 1, `--nodeport-addresses: nodePortAddresses[0]: "primary" must stand alone`},
		{[]string{"--manifests", "d", "--detect-local-mode", "Guess"}, 1, `detectLocalMode: "Guess" is not supported`},
	} {
		code, _, stderr := runMain(tt.args...)
		if code != tt.code || !strings.Contains(stderr, tt.want) {
			t.Errorf("%q: exit code %d, %q; want %d, %q", tt.args, code, stderr, tt.code, tt.want)
		}
	}
}

func TestHelp(t *testing.T) {
	code, out, _ := runMain("--help")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{
		"Source flags:", "Node flags:", "Services flags:", "Process flags:",
		"--manifests", "--hostname-override", "--cluster-cidr", "--detect-local-mode", "--masquerade-all", "--nodeport-addresses", "--cleanup", "-v,",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("--help does not show %q", want)
		}
	}
}

func TestVersion(t *testing.T) {
	if code, out, _ := runMain("--version"); code != 0 || out != "nftproxy kube-proxy "+Version+"\n" {
		t.Errorf("exit code %d, %q", code, out)
	}
}

func TestConfig(t *testing.T) {
	f := newFlags()
	err := f.parse([]string{
		"--hostname-override= Node1 ", "--cluster-cidr=10.244.0.0/16, fd00:244::/32", "--detect_local_mode=InterfaceNamePrefix",
		"--pod-interface-name-prefix=veth", "--masquerade-all", "--nodeport-addresses=10.0.0.0/8", "--nodeport-addresses=::/0",
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.config()
	if err != nil {
		t.Fatal(err)
	}
	p := netip.MustParsePrefix
	if c.NodeName != "node1" || !c.MasqueradeAll || c.DetectLocal.Mode != proxier.DetectLocalInterfaceNamePrefix || c.DetectLocal.InterfaceNamePrefix != "veth" ||
		!slices.Equal(c.DetectLocal.ClusterCIDRs, []netip.Prefix{p("10.244.0.0/16"), p("fd00:244::/32")}) ||
		!slices.Equal(c.NodePortAddresses.CIDRs, []netip.Prefix{p("10.0.0.0/8"), p("::/0")}) {
		t.Errorf("got %+v", c)
	}
}
