package doctor

import (
	"context"
	"fmt"
)

// checkConfiguration checks that the configuration file is in effect.
func checkConfiguration(_ context.Context, n *node) Finding {
	switch {
	case n.Proxy == nil:
		return n.withoutProxy()
	case n.Proxy.ConfigFile == nil:
		return ok("the configuration is in effect")
	}
	problem := n.Proxy.ConfigFile
	return warn(fmt.Sprintf("%s has changed and cannot be used: the proxy has kept its configuration for %s, and "+
		"cannot start again", problem.File, n.age(problem.Since)), "correct the file").With(problem.Error)
}

// checkManifests checks that all manifests are served as they are.
func checkManifests(_ context.Context, n *node) Finding {
	switch {
	case n.Proxy == nil:
		return n.withoutProxy()
	case n.Proxy.Manifests == nil:
		return skipped("the proxy serves an API server, without manifests")
	}
	m := n.Proxy.Manifests
	if m.ProblemCount == 0 {
		return ok(fmt.Sprintf("%d manifests with %d objects in %s are valid", m.Files, m.Objects, m.Dir))
	}
	const limit = 20
	var details []string
	for _, p := range m.Problems[:min(len(m.Problems), limit)] {
		details = append(details, fmt.Sprintf("%s; for %s", p.Text, n.age(p.Since)))
	}
	if more := m.ProblemCount - len(details); more > 0 {
		details = append(details, fmt.Sprintf("and %d more", more))
	}
	return fail(fmt.Sprintf("problems in %s (%d): objects are not served, or in an earlier version",
		m.Dir, m.ProblemCount),
		"correct the files, and validate them with nftproxy check; a change takes effect within a second").
		With(details...)
}
