package packet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// onProxies returns a step for the proxies of both nodes.
func onProxies(f func(*cluster)) step {
	return func(s *story, _ testing.TB, _ []string) string {
		f(s.cluster)
		return ""
	}
}

// flags sets the flags of the next start: the default ones and these, or only
// these after the word only.
func (s *story) flags(_ testing.TB, args []string) string {
	if len(args) > 0 && args[0] == "only" {
		s.setFlags(args[1:]...)
	} else {
		s.setFlags(append(defaultFlags(), args...)...)
	}
	return ""
}

// again restarts the proxies with flags as in the step flags, and waits until
// all objects are in effect.
func (s *story) again(t testing.TB, args []string) string {
	s.terminate()
	s.flags(t, args)
	s.start()
	s.settle()
	return ""
}

// signal sends SIGTERM to a proxy, which may end later: signal NODE
func (s *story) signal(_ testing.TB, args []string) string {
	s.ending = true
	s.proxy(args[0]).process.Signal(syscall.SIGTERM)
	return ""
}

// ended waits until a proxy has ended after a signal: ended NODE
func (s *story) ended(t testing.TB, args []string) string {
	s.proxy(args[0]).wait(t)
	return ""
}

// cleanup runs kube-proxy --cleanup: cleanup NODE
func (s *story) cleanup(t testing.TB, args []string) string {
	program, env := kubeProxy(t)
	cleanup := s.node(args[0]).Command(t.Context(), program, "--cleanup")
	cleanup.Env = env
	if out, err := cleanup.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return ""
}

// check checks the expectations of all applied Services, or of those with these
// names. Each Service is a subtest.
func (s *story) check(_ testing.TB, names []string) string {
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
	return ""
}

// expectations returns the checks of SERVICE[,SERVICE...] FROM... -> TO... =>
// OUTCOME. The outcome can be missing.
func (s *story) expectations(args []string) (all checks) {
	line := strings.Join(args[1:], " ")
	if !slices.Contains(args, "=>") {
		line += " => refused"
	}
	for name := range strings.SplitSeq(args[0], ",") {
		all = append(all, s.checks(s.service(name), line)...)
	}
	return all
}

// connect checks one line: connect SERVICE FROM... -> TO... => OUTCOME
func (s *story) connect(t testing.TB, args []string) string {
	s.expectations(args).run(t)
	return ""
}

// await repeats a step until it succeeds and returns the text after =>.
func (s *story) await(t testing.TB, args []string) (text string) {
	s.awaiting = true
	defer func() { s.awaiting = false }()
	judges := slices.Contains([]string{"connect", "ask"}, args[0])
	run, want := args[1:], ""
	if arrow := slices.Index(args, "=>"); arrow > 0 && !judges {
		run, want = args[1:arrow], strings.Join(args[arrow+1:], " ")
	}
	eventually(t, strings.Join(args, " "), func() (err error) {
		defer time.Sleep(20 * time.Millisecond)
		text, err = s.try(s.steps[args[0]], run)
		if got := strings.Join(strings.Fields(text), " "); err == nil && got != want && len(run) < len(args)-1 {
			err = errors.New("got " + got)
		}
		return err
	})
	return text
}

// keep keeps the tables of both nodes: keep NAME
func (s *story) keep(t testing.TB, args []string) string {
	s.kept[args[0]] = [2]string{tables(t, s.Node1.Namespace), tables(t, s.Node2.Namespace)}
	return ""
}

// same compares the tables of both nodes with kept ones: same NAME
func (s *story) same(t testing.TB, args []string) string {
	want, ok := s.kept[args[0]]
	if !ok {
		t.Fatalf("no tables %s in %v", args[0], slices.Sorted(maps.Keys(s.kept)))
	}
	for i, node := range s.Nodes() {
		if d := differences(want[i], tables(t, node.Namespace)); d != "" {
			t.Errorf("the tables of %s differ from %s:\n%s", node.Name, args[0], d)
		}
	}
	return ""
}

// likeNew compares the tables of both nodes with the tables of proxies that
// start now.
func (s *story) likeNew(t testing.TB, _ []string) string {
	s.expectFresh(t)
	return ""
}

// chains returns the number of chains with a prefix: chains NODE PREFIX
func (s *story) chains(t testing.TB, args []string) string {
	return fmt.Sprint(strings.Count(s.on(t, []string{args[0], "nft", "list", "chains"}), "\tchain "+args[1]))
}
