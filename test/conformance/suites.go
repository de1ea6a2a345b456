package main

import (
	_ "embed"
	"regexp"
	"slices"
	"sync"

	"sigs.k8s.io/yaml"
)

// suite is a package of tests.
type suite struct {
	Dir, Package string // the folder of its module, and the package
	Random       bool   // it has the flag -seeds
	Features     []feature
}

// feature is what a group of tests shows.
type feature struct {
	Name  string
	Tests []string // names of tests, possibly with patterns of subtests
}

// reference is a group of cases that kube-proxy 1.37.2 fails.
type reference struct {
	Modes  []string // of kube-proxy
	Cases  string   // a regular expression of names
	Reason string
}

var (
	//go:embed suites.yaml
	suitesYAML []byte
	//go:embed references.yaml
	referencesYAML []byte
)

// suites returns what the kit runs, references the cases that kube-proxy was
// seen to fail.
var (
	suites     = sync.OnceValue(func() []suite { return read[suite](suitesYAML) })
	references = sync.OnceValue(func() []reference { return read[reference](referencesYAML) })
)

func read[T any](text []byte) (all []T) {
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		panic(err) // the text is a constant
	}
	return all
}

// known returns why kube-proxy fails a case in a mode, "" if it does not.
func known(mode, name string) string {
	for _, r := range references() {
		if slices.Contains(r.Modes, mode) && regexp.MustCompile("^("+r.Cases+")$").MatchString(name) {
			return r.Reason
		}
	}
	return ""
}
