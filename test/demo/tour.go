package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/listing"
)

//go:embed tour.txt
var tourScript string

//go:embed keep.txt
var keepScript string

const next = `To try more: "bin/demo --keep" keeps the cluster running after the tour, and lists commands to try in
it. "bin/nftproxy --help" lists the questions that it answers. README.md has the ways to install it.`

// tour plays the script on a cluster.
type tour struct {
	report
	cluster     *cluster
	started     time.Time
	connections atomic.Int64

	// Some steps leave these for later steps.
	flows  []*lab.Conn
	tables []string
}

// errInterrupted is returned when a signal ended the tour.
var errInterrupted = errors.New("interrupted; everything is cleaned up")

// run creates the cluster, plays the script and removes the cluster.
func (t *tour) run(interrupt context.Context, keep bool) (err error) {
	ctx, fail := context.WithCancelCause(interrupt)
	defer fail(nil)
	t.cluster.fail = fail
	t.print(`nftproxy: the tour

This program builds a small cluster on this machine and runs nftproxy on its nodes. It opens real
connections and checks the results. "ok" means that a check passed.`)
	defer func() {
		if closeErr := t.cluster.close(); closeErr != nil {
			err = fmt.Errorf("clean up: %w", closeErr)
		}
	}()
	if err = t.cluster.open(ctx); err == nil {
		err = t.play(ctx, tourScript)
	}
	switch {
	case interrupt.Err() != nil:
		return errInterrupted
	case ctx.Err() != nil:
		err = context.Cause(ctx) // the reason for any other error
	}
	if t.checks == 0 {
		return err
	}
	err = t.summarize(err)
	if !keep {
		t.print("%s", next)
		return err
	}
	t.play(ctx, keepScript)
	<-interrupt.Done()
	return err
}

// summarize prints the result of the tour, which stopped if err is not nil. It
// returns an error if the tour stopped or a check failed.
func (t *tour) summarize(err error) error {
	failed := len(t.failures)
	t.heading("Summary")
	t.print("%d of %d checks passed, with %d connections in %.1f seconds.",
		t.checks-failed, t.checks, t.connections.Load(), time.Since(t.started).Seconds())
	t.printed = 0 // repeat all failures
	t.printFailures()
	switch {
	case err != nil:
		return fmt.Errorf("the tour stopped: %w", err)
	case failed > 0:
		return fmt.Errorf("%d of %d checks failed", failed, t.checks)
	}
	return nil
}

// play prints a script and runs its steps. The error is the reason why a step
// or the output stopped. Failed checks are only counted.
func (t *tour) play(ctx context.Context, script string) error {
	steps := map[string]func(ctx context.Context, argument string, rows [][]string) error{
		"@services": t.showServices, "@calls": t.makeCalls, "@events": t.makeEvents, "@flows": t.openFlows,
		"@ask": t.askFlows, "@endpoints": t.changeEndpoints, "@save": t.saveTables, "@compare": t.compareTables,
		"@run": t.runCommand,
	}
	script = strings.NewReplacer("{name}", t.cluster.name, "{folder}", t.cluster.folder(),
		"{arguments}", strings.Join(t.cluster.proxyArgs("node1"), " ")).Replace(script)
	columns := regexp.MustCompile(` {2,}`)
	for block := range strings.SplitSeq(strings.TrimSpace(script), "\n\n") {
		first, rest, _ := strings.Cut(block, "\n")
		kind, argument, _ := strings.Cut(first, " ")
		switch step := steps[kind]; {
		case step != nil:
			var rows [][]string
			for line := range strings.Lines(rest) {
				rows = append(rows, columns.Split(strings.TrimSpace(line), -1))
			}
			if err := errors.Join(step(ctx, argument, rows), ctx.Err(), t.err); err != nil {
				return err
			}
		case kind == "#":
			t.heading(argument)
		case kind != "//":
			t.print("%s", block)
		}
	}
	return t.err
}

// showServices lists the Services of the manifests.
func (t *tour) showServices(context.Context, string, [][]string) error {
	rows := [][]any{{"SERVICE", "TYPE", "CLUSTER IPS", "PORTS (:NODEPORT)", "EXTERNAL IPS", "LOADBALANCER IPS"}}
	for _, name := range slices.Sorted(maps.Keys(t.cluster.services)) {
		service := t.cluster.services[name]
		var ports, balancers []string
		for _, p := range service.Spec.Ports {
			ports = append(ports, strings.TrimSuffix(fmt.Sprintf("%s %d:%d", p.Protocol, p.Port, p.NodePort), ":0"))
		}
		for _, ingress := range service.Status.LoadBalancer.Ingress {
			balancers = append(balancers, ingress.IP)
		}
		row := []any{name, service.Spec.Type}
		for _, list := range [][]string{service.Spec.ClusterIPs, ports, service.Spec.ExternalIPs, balancers} {
			row = append(row, strings.Join(list, ", "))
		}
		rows = append(rows, row)
	}
	t.table(rows)
	return nil
}

// changeEndpoints sets the endpoints of a Service: "shop/web web-1,web-2".
func (t *tour) changeEndpoints(_ context.Context, argument string, _ [][]string) error {
	service, pods, _ := strings.Cut(argument, " ")
	return t.cluster.setEndpoints(service, strings.Split(pods, ",")...)
}

// report prints the tour and counts its checks.
type report struct {
	w                       io.Writer
	scenes, checks, printed int // printed is the number of failures printed
	failures                []string
	err                     error // first error of writing
}

// print prints a text after a blank line.
func (r *report) print(format string, args ...any) {
	if r.err == nil {
		_, r.err = fmt.Fprintf(r.w, "\n"+format+"\n", args...)
	}
}

// heading prints the numbered heading of a scene.
func (r *report) heading(text string) {
	r.scenes++
	text = fmt.Sprintf("%d. %s", r.scenes, text)
	r.print("\n%s\n%s", text, strings.Repeat("-", len(text)))
}

// verdict counts a check, which passed if the error is nil, and returns its
// result.
func (r *report) verdict(err error) string {
	r.checks++
	if err == nil {
		return "ok"
	}
	r.failures = append(r.failures, err.Error())
	return "FAILED"
}

// table prints rows of cells, with the headings in the first row.
func (r *report) table(rows [][]any) {
	var aligned bytes.Buffer
	w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintf(w, strings.Repeat("%v\t", len(row))+"\n", row...)
	}
	w.Flush()
	var lines []string
	for line := range strings.Lines(aligned.String()) {
		lines = append(lines, "  "+strings.TrimRight(line, " \n"))
	}
	r.print("%s", strings.Join(lines, "\n"))
	r.printFailures()
}

// printFailures prints the failures that are not printed yet.
func (r *report) printFailures() {
	if r.printed < len(r.failures) {
		r.print("  FAILED: %s", strings.Join(r.failures[r.printed:], "\n  FAILED: "))
	}
	r.printed = len(r.failures)
}

// affinityRow matches clients of Services with sessionAffinity. Packets add
// them, and a flush removes them for good.
var affinityRow = regexp.MustCompile(`^ip6? set sticky-clients-\d+: `)

// saveTables saves the tables of node1 for compareTables. Elements are sorted;
// rules keep their order.
func (t *tour) saveTables(ctx context.Context, _ string, _ [][]string) error {
	lines, err := listing.List(ctx, t.cluster.lab.Node1.Namespace)
	order := func(l listing.Line) string {
		if l.Element {
			return l.String()
		}
		return l.Family + " " + l.Object
	}
	slices.SortStableFunc(lines, func(a, b listing.Line) int { return strings.Compare(order(a), order(b)) })
	t.tables = nil
	for _, l := range lines {
		if text := l.String(); !affinityRow.MatchString(text) {
			t.tables = append(t.tables, text)
		}
	}
	return err
}

// compareTables checks that the tables of node1 are as saveTables saved them.
func (t *tour) compareTables(ctx context.Context, _ string, _ [][]string) error {
	saved := t.tables
	if err := t.saveTables(ctx, "", nil); err != nil {
		return err
	}
	var err error
	if !slices.Equal(saved, t.tables) {
		slices.Sort(saved)
		slices.Sort(t.tables)
		err = fmt.Errorf("the tables differ:\n%s", listing.Difference(saved, t.tables))
	}
	t.print("  %s: The tables of both families are the same as before, row by row.", t.verdict(err))
	t.printFailures()
	return nil
}

// runCommand runs a command of bash on a host, such as "node1 nft list tables",
// and prints its output. Each row is a regular expression that the output must
// match. It repeats the command until all do, because the effects of earlier
// steps can be late: dead endpoints are found later beside many
// connections. With rows, the command may fail.
func (t *tour) runCommand(ctx context.Context, argument string, rows [][]string) error {
	host, command, _ := strings.Cut(argument, " ")
	limited, cancel := context.WithTimeout(ctx, 2*effectTimeout)
	defer cancel()
	for {
		cmd := t.cluster.hosts[host].Command(limited, "bash", "-c", command)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // all that bash starts ends with it
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		out, err := cmd.CombinedOutput()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && len(rows) == 0:
			return fmt.Errorf("%s: %w: %s", argument, err, out)
		}
		missing := slices.DeleteFunc(slices.Clone(rows), func(row []string) bool {
			return regexp.MustCompile("(?m)" + strings.Join(row, "  ")).Match(out)
		})
		if len(missing) > 0 && lab.Sleep(limited, 100*time.Millisecond) {
			continue
		}
		text := strings.TrimSpace(fmt.Sprintf("%s# %s\n%s", host, command, out))
		t.print("%s", regexp.MustCompile("(?m)^.").ReplaceAllString(text, "  $0"))
		for i := range rows {
			var err error
			if i < len(missing) {
				err = fmt.Errorf("%s: got no %q", argument, strings.Join(missing[i], "  "))
			}
			t.verdict(err)
		}
		t.printFailures()
		return nil
	}
}
