// Package doctor checks a node for conditions that make Services fail: the
// kernel, its settings, and what other programs have configured in the network
// namespace of the calling thread.
//
// Each check returns a finding with its reason and, unless all is well, a
// remedy. docs/checks.md has a section for each check. Most checks need only
// the kernel; those that need a running proxy are skipped without one. The
// checks change nothing. One of them sends a transaction that the kernel
// aborts.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/cmd/findings"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/kernel"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// Config configures the checks.
type Config struct {
	// Root is the directory with proc and sys. The default is "/".
	Root string
	// Version is the version of the program, for the report.
	Version string
	// Fast leaves out the checks that can take more than a few milliseconds.
	Fast bool
	// Proxy is the running proxy, nil if there is none. ProxyError is then the
	// reason.
	Proxy      *answer.ProxyStatus
	ProxyError error
	// Services returns all Services of the running proxy. nil skips the checks
	// that need them.
	Services func(context.Context) iter.Seq2[*table.ServiceView, error]
	// Endpoints returns some endpoints of each service port of the running
	// proxy. nil skips the check that needs them.
	Endpoints func(context.Context) iter.Seq2[*answer.PortEndpoints, error]
	// Differences compares the tables in the kernel with those that the running
	// proxy wants. nil skips the check that needs it.
	Differences func(context.Context) iter.Seq2[*keep.DiffStep, error]
	// AllRows makes it compare all rows, without a time limit.
	AllRows bool
	// Nodes returns some endpoints of each node. Without it, the endpoints that
	// are checked are in the tables.
	Nodes func(context.Context) iter.Seq2[*answer.NodeEndpoints, error]
}

// Report, Finding and Result are those of package findings.
type (
	Report  = findings.Report
	Finding = findings.Finding
	Result  = findings.Result
)

// Results.
const (
	Skipped = findings.Skipped
	OK      = findings.OK
	Info    = findings.Info
	Warn    = findings.Warn
	Fail    = findings.Fail
)

// check is a check of the node.
type check struct {
	name string
	slow bool // can take more than a few milliseconds
	run  func(ctx context.Context, n *host) Finding
}

// checks returns all checks in the order of the report.
func checks() []check {
	return []check{
		{"kernel", false, checkKernel},
		{"kernel-features", true, checkFeatures},
		{"hash", true, checkHash},
		{"timeouts", true, checkTimeouts},
		{"table", false, checkTable},
		{rowsCheck, true, checkRows},
		{"leftovers", true, checkLeftovers},
		{"filters", true, checkFilters},
		{"nat-chains", true, checkNATChains},
		{"health-checks", true, checkHealthChecks},
		{"ip-forward", false, checkForwarding},
		{"rp-filter", false, checkReversePath},
		{"routes", true, checkRoutes},
		{"route-localnet", false, checkRouteLocalnet},
		{"conntrack", false, checkConntrack},
		{"conntrack-liberal", false, checkLiberal},
		{"stale-connections", true, checkStaleConnections},
		{"dead-endpoints", false, checkDeadEndpoints},
		{"endpoints", true, checkEndpoints},
		{"nodeport-range", false, checkNodePortRange},
		{"bridge-netfilter", false, checkBridgeNetfilter},
		{"proxies", true, checkProxies},
		{"other-proxies", false, checkOtherProxies},
		{"local-detection", false, checkLocalDetection},
		{"api-server", false, ofAPI(checkAPIServer)},
		{"watch", false, ofAPI(checkWatch)},
		{"manifests", false, checkManifests},
		{"configuration", false, checkConfiguration},
		{"clock", false, checkClock},
		{"source-ranges", true, checkSourceRanges},
		{"service-addresses", true, checkServiceAddresses},
	}
}

// Limits of a check, and of a slow one.
const (
	timeout     = 2 * time.Second
	slowTimeout = 6 * time.Second
)

// See is the page with a section for each check.
const see = "docs/checks.md#"

// Run runs the checks on the node of the calling thread.
func Run(ctx context.Context, config Config) *Report {
	config.Root = cmp.Or(config.Root, "/")
	r := &Report{Version: config.Version, Kernel: kernel.Release(), Time: time.Now().UTC().Truncate(time.Second)}
	r.Node, _ = os.Hostname()
	for _, c := range checks() {
		if c.slow && config.Fast {
			continue
		}
		r.Findings = append(r.Findings, c.finding(ctx, config))
	}
	return r
}

// finding runs the check with a time limit.
func (c *check) finding(ctx context.Context, config Config) Finding {
	limit := timeout
	if c.slow {
		limit = slowTimeout
	}
	if !config.AllRows || c.name != rowsCheck {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	start, n := time.Now(), &host{Config: config}
	f := skipped("the time limit was reached")
	if ctx.Err() == nil {
		f = c.run(ctx, n)
	}
	if n.failed != nil {
		f = unknown(n.failed)
	}
	f.Check, f.See, f.Seconds = c.name, see+c.name, time.Since(start).Seconds()
	return f
}

func ok(reason string) Finding { return Finding{Result: OK, Reason: reason} }

func info(reason, remedy string) Finding {
	return Finding{Result: Info, Reason: reason, Remedy: remedy}
}

func warn(reason, remedy string) Finding {
	return Finding{Result: Warn, Reason: reason, Remedy: remedy}
}

func fail(reason, remedy string) Finding {
	return Finding{Result: Fail, Reason: reason, Remedy: remedy}
}

func skipped(reason string) Finding { return Finding{Result: Skipped, Reason: reason} }

// unknown is the finding of a check that failed itself.
func unknown(err error) Finding { return Finding{Result: Skipped, Reason: err.Error()} }

// host is the node that is checked. Settings are read below Root, everything
// else in the network namespace of the calling thread.
type host struct {
	Config
	// failed is the first error of a method that reads settings. The check then
	// has no other finding.
	failed error
}

// withoutProxy is the finding of a check that needs a running proxy.
func (n *host) withoutProxy() Finding {
	if n.ProxyError != nil {
		return skipped("only a running proxy knows: " + n.ProxyError.Error())
	}
	return skipped("only a running proxy knows")
}

func families() []nft.Family { return []nft.Family{nft.IPv4, nft.IPv6} }

func (n *host) path(parts ...string) string {
	return filepath.Join(append([]string{n.Root}, parts...)...)
}

// list returns at most limit values, and the number of the others.
func list[T any](values []T, limit int) string {
	var texts []string
	for _, v := range values[:min(len(values), limit)] {
		texts = append(texts, fmt.Sprint(v))
	}
	text := strings.Join(texts, ", ")
	if more := len(values) - limit; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// sortedLines returns the lines in order, the first ones if there are many.
func sortedLines(lines []string) []string {
	const limit = 20
	slices.Sort(lines)
	if more := len(lines) - limit; more > 0 {
		lines = append(lines[:limit], fmt.Sprintf("and %d more", more))
	}
	return lines
}
