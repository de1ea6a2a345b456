package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/app"
)

// The test program is also the programs that it tests, under these names.
const (
	demoProgram         = "nftproxy-demo"
	kubeProxyProgram    = "nftproxy-kube-proxy"
	masqueradingProgram = "nftproxy-kube-proxy-that-masquerades" // all, which is not what the tour wants
	brokenProgram       = "nftproxy-kube-proxy-that-ends"
)

func TestMain(m *testing.M) {
	args := os.Args[1:]
	switch filepath.Base(os.Args[0]) {
	case demoProgram:
		os.Exit(run(args, os.Stdout, os.Stderr))
	case masqueradingProgram:
		args = append(args, "--masquerade-all")
		fallthrough
	case kubeProxyProgram:
		os.Exit(app.Main(args, os.Stdout, os.Stderr))
	case brokenProgram:
		os.Stderr.WriteString("these are my last words\n")
		os.Exit(3)
	}
	os.Exit(m.Run())
}
