// Package script runs tests that are scripts. A script is a text file with
// steps, one in each line, and with the files that they use:
//
//	# A Service without an endpoint rejects connections.
//	apply web.yaml
//	sync
//	endpoints default/web => none
//	list
//	cmp stdout want.nft
//
//	-- web.yaml --
//	apiVersion: v1
//	…
//
// The engine is package testscript of github.com/rogpeppe/go-internal, which
// describes the format and the standard commands, among them cmp, grep, stdout
// and exec. This package adds commands that return text, usually functions with
// typed parameters (Steps): a step can end with the text that it must return,
// after =>. A step with ! must fail, and stderr then has the error. Command
// steps lists the commands of a package.
//
// Scripts run in parallel. With the flag -update, cmp writes the text that it
// got to the script.
package script

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

var update = flag.Bool("update", false, "update the expected text in scripts and golden files")

// Update reports whether the flag -update is set.
func Update() bool { return *update }

// Script is a running script.
type Script = testscript.TestScript

// Command is a step of scripts. It returns what stdout gets, with spaces and
// line breaks as they are; => compares words only.
type Command func(s *Script, args []string) (string, error)

// Suite has the scripts of a directory.
type Suite struct {
	Dir string // testdata/scripts if empty
	// Namespace starts each script in a network namespace of its own. The
	// commands run in the script's thread, and programs that exec starts too.
	Namespace bool
	// Patience is the time for which a step is repeated until it returns the
	// text after =>. By default, a step is run once.
	Patience time.Duration
	// Condition reports whether the condition of a step, such as [name], holds.
	Condition func(name string) (bool, error)
	// FakeClock runs each script in a bubble of testing/synctest: time passes
	// at once while all goroutines of the script wait for it.
	FakeClock bool
	// Setup prepares each script, and returns its commands.
	Setup func(*Env) (map[string]Command, error)
	// Judges are the names of commands whose arguments include => and the text
	// after it. They compare themselves.
	Judges []string
}

// Env is the environment of a script before its first step.
type Env struct {
	*testscript.Env
	T testing.TB
}

// Main runs the tests of a package with scripts. Unless -parallel is set, twice
// as many run at a time as there are processors: they wait for the kernel and
// for other programs.
func Main(m *testing.M) {
	flag.Parse()
	isSet := false
	flag.Visit(func(f *flag.Flag) { isSet = isSet || f.Name == "test.parallel" })
	if !isSet {
		_ = flag.Set("test.parallel", fmt.Sprint(2*runtime.GOMAXPROCS(0)))
	}
	os.Exit(m.Run())
}

// Run runs the scripts of a suite as subtests, in parallel with other tests.
func Run(t *testing.T, suite Suite) {
	t.Helper()
	t.Parallel()
	if suite.Dir == "" {
		suite.Dir = "testdata/scripts"
	}
	files, err := filepath.Glob(filepath.Join(suite.Dir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: got no scripts (%v)", suite.Dir, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if suite.FakeClock {
				synctest.Test(t, func(t *testing.T) { suite.run(t, file) })
			} else {
				suite.run(t, file)
			}
		})
	}
}

// standard are the commands of package testscript, which take precedence.
const standard = "cd chmod cmp cmpenv cp env exec exists grep kill mkdir mv rm skip stderr stdin stdout ttyin ttyout " +
	"stop symlink unix2dos unquote wait"

func (suite Suite) run(t *testing.T, file string) {
	if suite.Namespace {
		nstest.Enter(t)
	}
	var report strings.Builder
	defer func() { // the steps are printed before tables and logs, which are long
		if t.Failed() {
			fmt.Fprintf(&report, "run this script alone: go test -run '^%s$' %s",
				strings.ReplaceAll(t.Name(), "/", "$/^"), packageDir())
		}
		t.Log(report.String())
	}()
	commands := make(map[string]func(*Script, bool, []string))
	testscript.RunT(subtest{t, &report}, testscript.Params{
		Files:         []string{file},
		Cmds:          commands,
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			all, err := suite.Setup(&Env{e, t})
			for name, c := range all {
				if slices.Contains(strings.Fields(standard), name) {
					t.Fatalf("the name of the step %s is that of a standard command, which would run instead", name)
				}
				commands[name] = c.step(suite.Patience, slices.Contains(suite.Judges, name))
			}
			return err
		},
		Condition:          suite.Condition,
		RequireUniqueNames: true,
	})
}

// step returns a command as a step of a script. A command that judges gets all
// arguments.
func (c Command) step(patience time.Duration, judges bool) func(s *Script, fails bool, args []string) {
	return func(s *Script, fails bool, args []string) {
		var want string
		arrow := slices.Index(args, "=>")
		if judges {
			arrow = -1
		}
		if arrow >= 0 {
			args, want = args[:arrow], strings.Join(args[arrow+1:], " ")
		}
		text, err := c(s, args)
		for end := time.Now().Add(patience); arrow >= 0 && words(text, err) != want && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
			text, err = c(s, args)
		}
		fmt.Fprint(s.Stdout(), text)
		switch {
		case err != nil && !fails:
			s.Fatalf("%v", err)
		case err == nil && fails:
			s.Fatalf("the step must fail, and it did not")
		case err != nil:
			fmt.Fprintln(s.Stderr(), err)
		}
		if got := words(text, err); arrow >= 0 && got != want {
			s.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}

// words returns the words of the text that a command returned, or of its error.
func words(text string, err error) string {
	if err != nil {
		text = err.Error()
	}
	return strings.Join(strings.Fields(text), " ")
}

// subtest is the T of package testscript that runs a script in this test, and
// collects what it logs: the steps, and the difference.
type subtest struct {
	*testing.T
	report *strings.Builder
}

func (t subtest) Log(args ...any) { fmt.Fprintln(t.report, args...) }

func (t subtest) Run(_ string, f func(testscript.T)) { f(t) }

func (t subtest) Parallel() {}

func (t subtest) Verbose() bool { return testing.Verbose() }

// packageDir returns the folder of the tested package in the repository, as an
// argument of the go command.
func packageDir() string {
	dir, err := os.Getwd()
	if err != nil {
		return "."
	}
	for root := dir; ; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			return "." + strings.TrimPrefix(dir, root)
		}
		if root == "/" {
			return "."
		}
	}
}
