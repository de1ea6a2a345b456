package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
)

// programs are what the tour runs.
type programs struct {
	kubeProxy, nft string
}

// findPrograms returns where the programs are, for a process of that effective user. The error says what is missing, and
// what to do.
func findPrograms(euid int, kubeProxy string) (programs, error) {
	if euid != 0 {
		return programs{}, errors.New("the tour makes network namespaces, which takes root: please run it as root (sudo make demo)")
	}
	found, err := exec.LookPath(kubeProxy)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return programs{}, fmt.Errorf("there is no kube-proxy to show (%w): `make build` makes bin/kube-proxy, "+
			"--kube-proxy PROGRAM names another one", err)
	}
	p := programs{}
	if p.kubeProxy, err = filepath.Abs(found); err != nil {
		return programs{}, err
	}
	if p.nft, err = findProgram("nft"); err != nil {
		return programs{}, fmt.Errorf("the tour shows kube-proxy's rules with the nft program, which is not there (%w): "+
			"please install it (apt-get install nftables)", err)
	}
	return p, nil
}

// findProgram also looks where a shell that became root without root's PATH does not.
func findProgram(name string) (string, error) {
	found, err := exec.LookPath(name)
	for _, folder := range []string{"/usr/sbin", "/sbin"} {
		if err == nil {
			break
		}
		if path, sbinErr := exec.LookPath(filepath.Join(folder, name)); sbinErr == nil {
			return path, nil
		}
	}
	return found, err
}
