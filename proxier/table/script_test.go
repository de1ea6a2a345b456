package table_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/script"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

func TestMain(m *testing.M) { script.Main(m) }

// TestScripts runs testdata/scripts. make steps PACKAGE=proxier/table lists the
// steps; docs/failures.md has what follows from each error.
func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{Namespace: true, Setup: func(env *script.Env) (map[string]script.Command, error) {
		e := newEngine(env.T)
		e.dir = env.WorkDir
		return e.commands(), e.provide(env.WorkDir)
	}})
}

// newSample returns an engine with Tables, after a sync with the sample
// Services, in a network namespace of its own.
func newSample(t *testing.T, options ...string) *engine {
	t.Helper()
	t.Parallel()
	tabletest.NewNamespace(t)
	e := newEngine(t)
	e.config.Observer, e.config.Events = nil, nil // the engine has no locks
	err := e.start(options...)
	tabletest.PassSample(e.sinks)
	if err = errors.Join(err, e.sinks.Sync()); err != nil {
		t.Fatal(err)
	}
	return e
}

// engine runs the steps of a script: a process with a Table of each family, and
// the objects of the cluster.
type engine struct {
	objects
	answers
	faults
	t         testing.TB
	dir       string // of the script
	config    table.Config
	limits    keep.Limits
	families  []nft.Family
	tables    []*table.Table
	kernels   []*tabletest.Kernel
	hasCounts bool      // the kernel reports the numbers of rows
	fails     string    // what the kernel cannot read when a process starts
	conn      *nft.Conn // of the script
}

func newEngine(t testing.TB) *engine {
	e := &engine{
		t: t, config: table.Config{Rules: tabletest.Rules()}, limits: keep.DefaultLimits(),
		families: []nft.Family{nft.IPv4}, hasCounts: true, objects: newObjects(), answers: newAnswers(),
	}
	e.limits.FirstRetry, e.limits.Time = 0, time.Hour
	e.limits.PartTime, e.limits.Spread = time.Hour, time.Hour // on slow machines, too
	e.limits.FreeRepair = time.Hour                           // repairs do not wait
	e.limits.FirstPause, e.limits.LastPause, e.limits.CheckShare, e.limits.ScrubShare = 0, 0, 0, 0
	e.config.Limits, e.config.Observer, e.config.Events = &e.limits, e.answers.observe, &e.events
	e.config.Open = func() (keep.Kernel, error) {
		conn, err := nft.Open()
		k := &tabletest.Kernel{Conn: conn, NoCounts: !e.hasCounts}
		k.OnCommit = func(b *nft.Batch, commit func() error) error { return e.commit(e, b, commit) }
		switch fail := func() error { return nft.ErrGeneration }; e.fails {
		case "rows":
			k.OnRows = fail
		case "chains":
			k.OnChains = fail
		case "rules":
			k.OnRules = fail
		}
		k.OnFindRows = func(want, found []nft.Row) { e.findRows(e, want, found) }
		e.kernels = append(e.kernels, k)
		return k, err
	}
	e.conn = nstest.Open(t)
	t.Cleanup(func() { e.stop() })
	return e
}

// provide copies the files that scripts share to the directory of a script.
func (e *engine) provide(dir string) error {
	files, err := filepath.Glob("testdata/*.[ny]*")
	for _, file := range files {
		text, errRead := os.ReadFile(file)
		err = errors.Join(err, errRead, os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o600))
	}
	return err
}

func (e *engine) commands() map[string]script.Command {
	steps := map[string]any{
		"start": e.start, "nft": e.runNFT, "limit": e.limit, "no-counts": e.noCounts,
		// rows, chains or rules: the next process cannot read them.
		"unreadable": func(what string) { e.fails = what },
		"skip-ids":   e.skipIDs, "replace-rules": e.replaceRules,
		"sync":   e.each((*table.Table).Sync),   // writes changes, as the loop of a proxy does.
		"resync": e.each((*table.Table).Resync), // tries refused service ports again, too.
		"finish": e.each(finish),
		"check":  e.each((*table.Table).Check), // looks for changes by other programs.
		"scrub":  e.each(scrub),
		"wanted": e.wanted,
	}
	maps.Copy(steps, e.objectSteps())
	maps.Copy(steps, e.faultSteps())
	maps.Copy(steps, e.answerSteps(e))
	return script.Steps(steps)
}

// start starts a process, after the last one has stopped. Options stay for
// later processes: ipv4, ipv6, dual-stack, nodeports=CIDR,...,
// service-budget=N, namespace-budget=N, and fields of table.Config and
// ruleset.Config, such as number-limit=1.
func (e *engine) start(options ...string) error {
	if err := errors.Join(e.setOptions(options), e.stop()); err != nil {
		return err
	}
	e.answers.reset()
	tables, err := table.New(e.config, e.families...)
	if err != nil {
		return err
	}
	e.config.Rules.AffinitySeed++ // a process does not know the seed of an earlier one
	var sinks cluster.Sinks
	for _, t := range tables {
		sinks = append(sinks, t)
	}
	e.tables, e.kernels = tables, nil
	e.passTo(sinks)
	err = sinks.Setup()
	for _, k := range e.kernels {
		k.OnRows, k.OnChains, k.OnRules = nil, nil, nil
	}
	e.fails = ""
	return err
}

// stop ends the process. The table stays, and later changes of objects reach
// the next process.
func (e *engine) stop() (err error) {
	for _, t := range e.tables {
		err = errors.Join(err, t.Close())
	}
	e.tables = nil
	e.passTo(cluster.Sinks{})
	return err
}

// setOptions sets families, the addresses of NodePorts, and fields of the
// configuration.
func (e *engine) setOptions(options []string) error {
	rules := &e.config.Rules
	for i := range options {
		options[i] = strings.Replace(options[i], "-budget=", "=", 1)
	}
	for _, of := range []any{&e.config, rules, &rules.Budgets} {
		var err error
		if options, err = script.SetFields(of, options); err != nil {
			return err
		}
	}
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "ipv4":
			e.families = []nft.Family{nft.IPv4}
		case "ipv6":
			e.families = []nft.Family{nft.IPv6}
		case "dual-stack":
			e.families = []nft.Family{nft.IPv4, nft.IPv6}
		case "nodeports":
			rules.NodePortAddresses = ruleset.NodePortAddresses{}
			if value, rules.NodePortAddresses.Primary = strings.CutPrefix(value, "primary,"); value != "" {
				rules.NodePortAddresses.CIDRs = tabletest.Prefixes(strings.Split(value, ",")...)
			}
		default:
			return fmt.Errorf("no option is named %s", name)
		}
	}
	return nil
}

// limit sets limits of transactions, of times and of repairs: name=value.
func (e *engine) limit(args ...string) error {
	if args[0] == "default" {
		e.limits, args = keep.DefaultLimits(), args[1:]
	}
	return onlyFields(&e.limits, args)
}

// onlyFields sets fields of a struct.
func onlyFields(of any, args []string) error {
	rest, err := script.SetFields(of, args)
	if len(rest) > 0 {
		err = fmt.Errorf("no field is named %s", rest[0])
	}
	return err
}

// noCounts makes the kernel report no numbers of rows, as before Linux 6.15.
func (e *engine) noCounts() {
	e.hasCounts = false
	for _, k := range e.kernels {
		k.NoCounts = true
	}
}

// skipIDs uses up the ids of session affinity that are reserved.
func (e *engine) skipIDs() {
	for _, t := range e.tables {
		table.SkipIDs(t)
	}
}

// each is a step that calls a method of each Table.
func (e *engine) each(f func(*table.Table) error) func() error {
	return func() (err error) {
		if e.tables == nil {
			return errors.New("no process runs: start one")
		}
		e.parts = nil
		for _, t := range e.tables {
			err = errors.Join(err, f(t))
		}
		return err
	}
}

// finish syncs until no change waits for its turn.
func finish(t *table.Table) error {
	for range 1000 {
		if err := t.Sync(); err != nil {
			return err
		}
		if _, waits := t.Next(); !waits {
			return nil
		}
	}
	return errors.New("changes wait after 1000 syncs")
}

// scrub calls Check until everything was compared.
func scrub(t *table.Table) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if err := t.Check(); err != nil || t.Scrubbed() {
			return err
		}
	}
	return errors.New("the scrubber does not complete a pass")
}

// wanted compares the tables in the kernel with the wanted ones, except for
// some sets, and the plans in views with those that were committed.
func (e *engine) wanted(except ...string) error {
	for _, t := range e.tables {
		diff, text, err := e.differenceToWanted(t, except...)
		if diff != "" {
			err = fmt.Errorf("the table in the kernel is not the wanted one:\n%s", diff)
		}
		if err = errors.Join(err, e.checkTexts(t.Family(), text), e.checkViews(t)); err != nil {
			return err
		}
	}
	return nil
}
