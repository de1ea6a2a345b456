package neighbours

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// scenario is a program beside the proxy.
type scenario struct {
	name     string // of the program in the documentation
	packages []string
	// prepare starts the program before the proxy. It can be empty.
	prepare func(t *testing.T, n *node)
	steps   []step
}

// step is what the program does, and the result.
type step struct {
	does   string // in the documentation
	script string // that runs in the Debian system
	// run is called after the script. It can be nil.
	run func(n *node)
	// blockedBy is a part of the name of the rule that blocks Services, "" if
	// they work.
	blockedBy string
}

func (s *step) result() string {
	if s.blockedBy == "" {
		return "work"
	}
	return "fail; `doctor` names " + s.blockedBy
}

// run runs a scenario: start, steps, end and cleanup.
func (s *scenario) run(t *testing.T) {
	t.Parallel()
	n := newNode(t, "bookworm")
	if s.prepare != nil {
		s.prepare(t, n)
	}
	n.start()
	for _, step := range s.steps {
		if step.script != "" {
			n.mustRun(t, step.script)
		}
		if step.run != nil {
			step.run(n)
		}
		if step.blockedBy == "" {
			n.works(s.name + ": " + step.does)
		} else {
			n.blocked(s.name+": "+step.does, step.blockedBy)
		}
	}
	n.stop()
	n.cleanUp()
}

func TestNeighbours(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, s.run)
	}
}

const (
	page  = "../../docs/neighbours.md"
	begin = "<!-- results of test/neighbours -->\n"
	end   = "<!-- end of results -->\n"
)

// The documentation has the results, as the scenarios demand them.
func TestDocumentation(t *testing.T) {
	var table strings.Builder
	table.WriteString("\n| program | what it does | Services |\n| --- | --- | --- |\n")
	for _, s := range scenarios() {
		name := s.name
		for _, p := range s.packages {
			name += fmt.Sprintf(" (%s %s)", p, version(t, "bookworm", p))
		}
		for _, step := range s.steps {
			fmt.Fprintf(&table, "| %s | %s | %s |\n", name, step.does, step.result())
			name = ""
		}
	}
	table.WriteString("\n| nft | lists the tables | loads its listing | the proxy takes over and cleans up |\n" +
		"| --- | --- | --- | --- |\n")
	for _, v := range nftVersions() {
		if v.listsOnly {
			fmt.Fprintf(&table, "| %s | yes | no | |\n", v.name())
		} else {
			fmt.Fprintf(&table, "| %s | yes | yes | yes |\n", v.name())
		}
	}
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the results", page)
	}
	want := before + begin + table.String() + "\n" + end + after
	if want == string(data) {
		return
	}
	if !*update {
		t.Fatalf("%s differs from the results: run go test ./test/neighbours -update; want\n%s", page, table.String())
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
