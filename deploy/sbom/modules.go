package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// module is a module that a program contains.
type module struct {
	path, version string
	sum           string // SHA-256 of its files as in go.sum, "" for the first two
	folder        string
	licenceFiles  []string // sorted paths
	licences      []string // SPDX identifiers, sorted
}

// standardLibrary is the path of the standard library in package URLs.
const standardLibrary = "std"

// goPackage is a package in the answer of `go list -json`.
type goPackage struct {
	Dir, Root string
	Module    *goModule // nil for the standard library
}

type goModule struct {
	Path, Version, Dir, Sum string
	Main                    bool
	Replace                 *goModule
}

// modulesOf returns the modules of the packages that a program links: its own
// module, the standard library and then the others in the order of their paths.
func modulesOf(repository, pkg, platform string) ([]*module, error) {
	packages, err := packagesOf(repository, pkg, platform)
	if err != nil {
		return nil, err
	}
	found := map[string]*module{}
	var own, standard *module
	for _, p := range packages {
		m := newModule(p)
		if found[m.path] == nil {
			found[m.path] = &m
		}
		folder := p.Dir
		switch {
		case p.Module == nil:
			standard = found[m.path]
			// The licence of OpenSSL in the folder of crypto/internal/boring is
			// for object files which programs do not link by default.
			folder = m.folder
		case p.Module.Main:
			own = found[m.path]
		}
		if err := found[m.path].addLicenceFiles(folder); err != nil {
			return nil, err
		}
	}
	if own == nil || standard == nil {
		return nil, fmt.Errorf("%s is not a program of this repository", pkg)
	}
	delete(found, own.path)
	delete(found, standard.path)
	modules := []*module{own, standard}
	for _, m := range found {
		modules = append(modules, m)
	}
	slices.SortFunc(modules[2:], func(a, b *module) int { return cmp.Compare(a.path, b.path) })
	return modules, nil
}

// packagesOf returns the packages that a program links.
func packagesOf(repository, pkg, platform string) ([]goPackage, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=Dir,Root,Module", pkg)
	cmd.Dir = repository
	if system, arch, ok := strings.Cut(platform, "/"); ok {
		cmd.Env = append(cmd.Environ(), "GOOS="+system, "GOARCH="+arch)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w\n%s", pkg, err, &stderr)
	}
	var packages []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages, nil
		}
		if err != nil {
			return nil, err
		}
		if p.Dir != "" { // package unsafe has no folder
			packages = append(packages, p)
		}
	}
}

// newModule returns the module of a package.
func newModule(p goPackage) module {
	m := p.Module
	if m == nil {
		return module{path: standardLibrary, version: strings.TrimPrefix(runtime.Version(), "go"), folder: p.Root}
	}
	if m.Replace != nil {
		m = m.Replace
	}
	return module{path: m.Path, version: m.Version, sum: m.Sum, folder: filepath.Clean(m.Dir)}
}
