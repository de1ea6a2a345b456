package table_test

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// faults are what happens at commits: at the next one, at commit 3 from now, or
// at each one that writes what a service port wants.
type faults struct {
	commits int
	once    map[int]*fault
	always  map[string]*fault // by service port; "" stands for all commits
	wrong   string            // a command that another program runs when a wrong row was read
	failed  int               // commits that failed
}

// fault is what happens at a commit: other programs run commands before or
// after it, its answer is lost, or it fails.
type fault struct {
	before, after string
	problems      []portProblem
	lost          bool
	unsent        bool // the request is not sent
}

// portProblem is an error number, and the service port that it is about, if
// there is one.
type portProblem struct {
	errno unix.Errno
	port  string
}

func (f *faults) faultSteps() map[string]any {
	return map[string]any{
		"fail": f.step(f.fail),
		// the answer: the kernel carries the next transaction out, and its
		// answer is lost.
		"lose": f.step(func(_ []string, to *fault) error { to.lost = true; return nil }),
		// nft ..., or sh '...': another program acts before the next commit.
		"before": f.step(func(words []string, to *fault) error { to.before = strings.Join(words, " "); return nil }),
		// the same after the next commit.
		"after":  f.step(func(words []string, to *fault) error { to.after = strings.Join(words, " "); return nil }),
		"refuse": f.refuse,
		// ends what fail and refuse began.
		"accept": func() { f.once, f.always = nil, nil },
		// nft ...: another program acts whenever the scrubber reads a wrong
		// row.
		"wrong-row": func(command ...string) { f.wrong = strings.Join(command, " ") },
	}
}

// step is a step about the next commit without a fault, or about commit 3 from
// now if it begins with `commit 3`.
func (f *faults) step(set func(words []string, to *fault) error) func(...string) error {
	return func(words ...string) error {
		if f.once == nil {
			f.once = make(map[int]*fault)
		}
		at := f.commits + 1
		for f.once[at] != nil {
			at++
		}
		if len(words) > 1 && words[0] == "commit" {
			n, err := strconv.Atoi(words[1])
			if err != nil {
				return err
			}
			at, words = f.commits+n, words[2:]
		}
		if f.once[at] == nil {
			f.once[at] = new(fault)
		}
		return set(words, f.once[at])
	}
}

// fail lets the next commit fail, or commit N from now after the words commit
// N: fail ENOMEM, whose error names no row; fail ENOMEM on default/web:http and
// ENOENT on ns/svc:http, whose errors name rows of these service ports; fail
// commit 2 ENOBUFS unsent, which sends nothing.
func (f *faults) fail(words []string, to *fault) error {
	for _, text := range strings.Split(strings.Join(words, " "), " and ") {
		name, text, _ := strings.Cut(text, " ")
		p := portProblem{errno: errnoOf(name)}
		if p.errno == 0 {
			return fmt.Errorf("%s is not the name of an errno", name)
		}
		p.port, _ = strings.CutPrefix(text, "on ")
		if to.unsent = text == "unsent"; to.unsent {
			p.port = ""
		}
		to.problems = append(to.problems, p)
	}
	return nil
}

func errnoOf(name string) unix.Errno {
	for errno := unix.Errno(1); errno < 134; errno++ {
		if unix.ErrnoName(errno) == name {
			return errno
		}
	}
	return 0
}

// refuse lets commits fail that write what a service port wants: refuse
// default/web:http EINVAL, refuse default/web:http ENOMEM untagged. Or all of
// them: refuse all ENOMEM. Or another program interferes: refuse all nft ….
func (f *faults) refuse(words ...string) error {
	if f.always == nil {
		f.always = make(map[string]*fault)
	}
	name, to := strings.TrimSuffix(words[0], "all"), new(fault)
	f.always[name] = to
	if words[1] == "nft" {
		to.before = strings.Join(words[1:], " ")
		return nil
	}
	err := f.fail(words[1:], to)
	if len(words) == 2 {
		to.problems[0].port = name
	} else {
		to.problems[0].port = ""
	}
	return err
}

// findRows runs the command of wrong-row.
func (f *faults) findRows(e *engine, want, found []nft.Row) {
	if f.wrong != "" && slices.ContainsFunc(found, func(r nft.Row) bool {
		return r.Set != nil && !slices.ContainsFunc(want, r.Matches)
	}) {
		if err := e.run(f.wrong); err != nil {
			e.t.Error(err)
		}
	}
}

// commit carries out a commit, or what is set to happen.
func (f *faults) commit(e *engine, b *nft.Batch, commit func() error) error {
	f.commits++
	now := f.once[f.commits]
	delete(f.once, f.commits)
	for port, fault := range f.always {
		if now == nil && (port == "" || e.writes(port) && b.HasTag(e.tagOf(port))) {
			now = fault
		}
	}
	if now == nil {
		return commit()
	}
	err := now.run(e, commit)
	if err != nil {
		f.failed++
	}
	return err
}

func (now *fault) run(e *engine, commit func() error) error {
	if now.unsent {
		return fmt.Errorf("send: %w", now.problems[0].errno)
	}
	if now.problems != nil {
		err := &nft.CommitError{Table: "table ip kube-proxy"}
		for _, p := range now.problems {
			problem := nft.Problem{Op: "commit", Errno: p.errno}
			if p.port != "" {
				problem = nft.Problem{Op: "add element", Object: "a row", Errno: p.errno, Tag: e.tagOf(p.port)}
			}
			err.Problems = append(err.Problems, problem)
		}
		return err
	}
	errBefore := e.run(now.before)
	err := commit()
	errAfter := e.run(now.after)
	if err = errors.Join(errBefore, err, errAfter); now.lost {
		err = errors.Join(err, nft.ErrUnknownOutcome)
	}
	return err
}

// replaceRules lets another program replace each rule of the table in place:
// the first ones of all chains, then the second ones, and so on. A comparison
// must name them, and the scrubber must repair the table once.
func (e *engine) replaceRules() error {
	t := e.tables[0]
	in := &nft.Table{Family: t.Family(), Name: ruleset.TableName}
	for i := 0; i == 0 || !testing.Short(); i++ { // on emulated machines, the first rules
		chains, err := e.conn.Chains(in)
		var command string
		var want []string
		for _, c := range chains {
			rules, errRules := e.conn.RuleIDs(in, c.Name) // repairs change the handles
			if err = errors.Join(err, errRules); i < len(rules) {
				command += fmt.Sprintf("replace rule %s %s %s handle %d drop; ",
					in.Family, in.Name, c.Name, rules[i].Handle)
				want = append(want, "changed rule of chain "+c.Name)
			}
		}
		if err != nil || want == nil {
			return err
		}
		if _, err := e.runNFT(command); err != nil {
			return err
		}
		got, err := differences(t)
		for at, text := range got {
			got[at], _, _ = strings.Cut(text, ":")
		}
		slices.Sort(got)
		slices.Sort(want)
		before := sum(maps.Values(t.Stats().Repairs))
		err = errors.Join(err, scrub(t))
		repairs := sum(maps.Values(t.Stats().Repairs)) - before
		if err != nil || !slices.Equal(got, want) || repairs != 1 {
			return errors.Join(err, fmt.Errorf("rule %d of %d chains: got %d repairs and differences\n%s\nwant\n%s",
				i, len(want), repairs, strings.Join(got, "\n"), strings.Join(want, "\n")))
		}
	}
	return nil
}

// run runs nft, or a shell in the directory of the script.
func (e *engine) run(command string) error {
	name, rest, _ := strings.Cut(command, " ")
	switch name {
	case "":
		return nil
	case "nft":
		_, err := e.runNFT(rest)
		return err
	}
	cmd := exec.Command("sh", "-c", rest)
	cmd.Dir = e.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", command, err, out)
	}
	return err
}
