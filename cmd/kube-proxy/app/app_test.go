package app

import (
	"bytes"
	"strings"
	"testing"
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
		{[]string{"--no-such-flag"}, 2, "kube-proxy: unknown flag: --no-such-flag: kube-proxy --help lists the flags\n"},
		{[]string{"serve"}, 2, `unexpected argument "serve": kube-proxy takes flags only`},
		{[]string{"--config", "/no/such/file"}, 2, "--config: open /no/such/file: no such file or directory: name a readable file"},
		{[]string{"--proxy-mode", "iptables"}, 2, "iptables"},
		{[]string{"--manifests", "d", "--cluster-cidr", "10.0.0.0/8,x"}, 2, `--cluster-cidr: "x" is not a CIDR`},
		{[]string{"--manifests", "d", "--nodeport-addresses", "primary,10.0.0.0/8"}, 2, `--nodeport-addresses: "primary" must stand alone`},
		{[]string{"--manifests", "d", "--detect-local-mode", "Guess"}, 2, `--detect-local-mode: "Guess" is not supported`},
	} {
		code, _, stderr := runMain(tt.args...)
		if code != tt.code || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
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
