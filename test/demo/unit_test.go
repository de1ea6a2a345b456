package main

import (
	"strings"
	"testing"
)

func TestFlags(t *testing.T) {
	for argument, want := range map[string]string{
		"--colour": "unknown flag: --colour", "all": `unexpected argument "all"`, "-h": "--kube-proxy PROGRAM",
	} {
		var out strings.Builder
		code := run([]string{argument}, &out, &out)
		if (code == 0) != (argument == "-h") || !strings.Contains(out.String(), want) {
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
