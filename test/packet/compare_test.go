package packet

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// flags sets the flags of the next start: the default ones and these, or only
// these after the word only.
func (s *story) flags(args ...string) {
	if len(args) > 0 && args[0] == "only" {
		s.setFlags(args[1:]...)
	} else {
		s.setFlags(append(defaultFlags(), args...)...)
	}
}

// again restarts the proxies with flags as in the step flags, and waits until
// all objects are in effect.
func (s *story) again(args ...string) {
	s.terminate()
	s.flags(args...)
	s.start()
	s.settle()
}

// signal sends SIGTERM to the proxy of a node, which may end later; ended waits
// until it has.
func (s *story) signal(node string) {
	s.ending = true
	s.proxy(node).process.Signal(syscall.SIGTERM)
}

// interrupt writes the objects of files, starts the proxies that do not run,
// and kills all after a random time.
func (s *story) interrupt(within time.Duration, files ...string) {
	for _, file := range files {
		s.apply(s.script.ReadFile(file))
	}
	for _, p := range s.proxies {
		if p.process == nil {
			p.start(s.t)
		}
	}
	time.Sleep(rand.N(within))
	s.kill()
}

// cleanup runs kube-proxy --cleanup.
func (s *story) cleanup(node string) {
	program, env := kubeProxy(s.t)
	cleanup := s.node(node).Command(s.t.Context(), program, "--cleanup")
	cleanup.Env = env
	if out, err := cleanup.CombinedOutput(); err != nil {
		s.t.Errorf("%v\n%s", err, out)
	}
}

// check checks the expectations of all applied Services, or of those with these
// names. Each Service is a subtest.
func (s *story) check(names ...string) {
	if len(names) == 0 {
		for name, service := range s.services {
			if service.Expect != "" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
	}
	var todo checks
	ends := make([]int, len(names)) // of the checks of each Service
	for i, name := range names {
		todo = append(todo, s.checks(s.service(name), s.service(name).Expect)...)
		ends[i] = len(todo)
	}
	// The checks of all Services run concurrently.
	errs, begin := todo.errors(context.Background()), 0
	for i, end := range ends {
		s.env.T.(*testing.T).Run(names[i], func(t *testing.T) { todo[begin:end].report(t, errs[begin:end]) })
		begin = end
	}
}

// expectations returns the checks of SERVICE[,SERVICE...] FROM... -> TO... =>
// OUTCOME. The outcome can be missing.
func (s *story) expectations(args ...string) (all checks) {
	line := strings.Join(args[1:], " ")
	if !slices.Contains(args, "=>") {
		line += " => refused"
	}
	for name := range strings.SplitSeq(args[0], ",") {
		all = append(all, s.checks(s.service(name), line)...)
	}
	return all
}

// connect checks one line.
func (s *story) connect(args ...string) { s.expectations(args...).run(s.t) }

// await repeats a step until it succeeds and returns the text after =>.
func (s *story) await(args ...string) (text string) {
	s.awaiting = true
	defer func() { s.awaiting = false }()
	judges := slices.Contains([]string{"connect", "ask"}, args[0])
	run, want := args[1:], ""
	if arrow := slices.Index(args, "=>"); arrow > 0 && !judges {
		run, want = args[1:arrow], strings.Join(args[arrow+1:], " ")
	}
	eventually(s.t, strings.Join(args, " "), func() (err error) {
		text, err = s.try(s.steps[args[0]], run)
		if got := strings.Join(strings.Fields(text), " "); err == nil && got != want && len(run) < len(args)-1 {
			err = errors.New("got " + got)
		}
		return err
	})
	return text
}

// keep keeps the tables of both nodes.
func (s *story) keep(name string) {
	s.kept[name] = [2]string{tables(s.t, s.Node1.Namespace), tables(s.t, s.Node2.Namespace)}
}

// same compares the tables of both nodes with kept ones.
func (s *story) same(name string) {
	want, ok := s.kept[name]
	if !ok {
		s.t.Fatalf("no tables %s in %v", name, slices.Sorted(maps.Keys(s.kept)))
	}
	for i, node := range s.Nodes() {
		if d := differences(want[i], tables(s.t, node.Namespace)); d != "" {
			s.t.Errorf("the tables of %s differ from %s:\n%s", node.Name, name, d)
		}
	}
}

// chains returns the number of chains with a prefix.
func (s *story) chains(node, prefix string) int {
	return strings.Count(s.on(node, "nft", "list", "chains"), "\tchain "+prefix)
}
