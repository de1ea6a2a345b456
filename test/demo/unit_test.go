package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab/listing"
)

func TestFlags(t *testing.T) {
	for argument, want := range map[string]string{
		"--colour": "unknown flag: --colour", "all": `unexpected argument "all"`, "-h": "--kube-proxy PROGRAM",
	} {
		var out strings.Builder
		code := run([]string{argument}, &out, &out)
		if (code == exitOK) != (argument == "-h") || !strings.Contains(out.String(), want) {
			t.Errorf("%s: got exit code %d and %q, want %q", argument, code, out.String(), want)
		}
	}
	if err := checkRequirements(1000, "sh"); err == nil || !strings.Contains(err.Error(), "run sudo make demo") {
		t.Errorf("got error %v without root", err)
	}
	if err := checkRequirements(0, "no/such/program"); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("got error %v without kube-proxy", err)
	}
}

func TestParseListing(t *testing.T) {
	got := linesOf(listing.Parse("ip", `table ip kube-proxy {
	map m {
		type ipv4_addr : verdict
		elements = { 10.96.0.80 comment "shop/web:http" : goto c,
			     10.96.0.10 : goto c }
	}

	chain c {
		meta mark set 1
		dnat ip to ip daddr
	}
}
`))
	want := []string{
		"chain c { meta mark set 1", "chain c { dnat ip to ip daddr", "map m { type ipv4_addr : verdict",
		"map m: 10.96.0.10 : goto c", `map m: 10.96.0.80 comment "shop/web:http" : goto c`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
