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

// TestInvalidCommandLines checks the exit code and that the error is one
// line. Package config tests the errors themselves.
func TestInvalidCommandLines(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--no-such-flag"}, "kube-proxy: unknown flag: --no-such-flag: kube-proxy --help lists the flags\n"},
		{[]string{"serve"}, `unexpected argument "serve": kube-proxy takes flags only`},
		{[]string{"--config", "/no/such/file"}, "--config: open /no/such/file: no such file or directory"},
		{[]string{"--proxy-mode", "iptables"}, "iptables"},
		{[]string{"--manifests", "d", "--cluster-cidr", "10.0.0.0/8,x"}, `--cluster-cidr: "x" is not a CIDR`},
		{[]string{"--manifests", "d", "--nodeport-addresses", "primary,10.0.0.1"},
			`--nodeport-addresses: "10.0.0.1" is none of primary, localhost, all and no CIDR`},
		{[]string{"--manifests", "d", "--detect-local-mode", "Guess"}, `--detect-local-mode: "Guess" is not supported`},
	} {
		code, _, stderr := runMain(tt.args...)
		if code != 2 || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: got exit code %d, %q; want 2, %q", tt.args, code, stderr, tt.want)
		}
	}
}

func TestHelp(t *testing.T) {
	code, out, _ := runMain("--help")
	if code != 0 {
		t.Errorf("got exit code %d, want 0", code)
	}
	for _, want := range []string{
		"Source flags:", "Node flags:", "Services flags:", "Process flags:", "--manifests", "--hostname-override",
		"--cluster-cidr", "--detect-local-mode", "--masquerade-all", "--nodeport-addresses", "--cleanup", "-v,",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("--help does not contain %q", want)
		}
	}
}

func TestVersion(t *testing.T) {
	want := "nftproxy kube-proxy " + Version + "\n"
	if code, out, _ := runMain("--version"); code != 0 || out != want {
		t.Errorf("got exit code %d, %q; want 0, %q", code, out, want)
	}
}
