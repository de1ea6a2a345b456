package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/script"
)

// The commands of scripts start demos and wait until they print a text, until
// files exist or until a number of kube-proxies runs; end checks the exit code,
// the standard error, and that nothing remains. Other commands check functions.
func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{Setup: func(e *script.Env) (map[string]script.Command, error) {
		var p *process
		on := func(f func(args []string) string) script.Command {
			return func(_ *script.Script, args []string) (string, error) { return f(args), nil }
		}
		must := func(f func(args []string) bool) script.Command {
			return func(_ *script.Script, args []string) (string, error) {
				if !f(args) {
					return "", fmt.Errorf("got no %q", args)
				}
				return "", nil
			}
		}
		stray := func() string { return "/run/nftproxy-" + p.name + "/stray.yaml" }
		return map[string]script.Command{
			"start": on(func(args []string) string {
				p = start(e.T, newName(), args[0], args[1:]...)
				return ""
			}),
			"start-same": on(func(args []string) string {
				p = start(e.T, p.name, args[0])
				return ""
			}),
			"again": on(func([]string) string {
				second := start(e.T, p.name, kubeProxyProgram)
				<-second.ended
				text := strings.TrimSuffix(strings.TrimSpace(second.read("stderr")), " "+p.name)
				return text[strings.LastIndex(text, ": ")+2:]
			}),
			"await": must(func(args []string) bool {
				text := strings.ReplaceAll(args[0], "NAME", p.name)
				return p.await(func() bool { return strings.Contains(p.read("stdout"), text) })
			}),
			"await-file": must(func(args []string) bool {
				file := strings.ReplaceAll(args[0], "NAME", p.name)
				return p.await(func() bool { return len(matches(file)) > 0 })
			}),
			"await-proxies": must(func(args []string) bool {
				return p.await(func() bool { return strconv.Itoa(len(p.kubeProxies())) == args[0] })
			}),
			"proxies": on(func([]string) string { return strconv.Itoa(len(p.kubeProxies())) }),
			"signal": on(func(args []string) string {
				signals := map[string]os.Signal{"INT": os.Interrupt, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP,
					"KILL": os.Kill}
				for n, _ := strconv.Atoi(args[1]); n > 0; n-- {
					p.cmd.Process.Signal(signals[args[0]])
					time.Sleep(time.Millisecond)
				}
				return ""
			}),
			"end": func(_ *script.Script, args []string) (string, error) {
				return "", p.end(args[0], strings.Join(args[1:], " "))
			},
			"printed": must(func(args []string) bool {
				missing := func(text string) bool { return !strings.Contains(p.read("stdout"), text) }
				return !slices.ContainsFunc(args, missing)
			}),
			"stray":        must(func([]string) bool { return os.WriteFile(stray(), nil, 0o644) == nil }),
			"stray-exists": must(func([]string) bool { return len(matches(stray())) > 0 }),
			"call":         on(checkCall), "event": on(checkEvent),
		}, nil
	}})
}

func okIf(ok bool) string {
	if ok {
		return "ok"
	}
	return "not ok"
}

// countsOf parses "a=1,b=2".
func countsOf(text string) counts {
	all := counts{}
	for part := range strings.SplitSeq(text, ",") {
		if name, n, ok := strings.Cut(part, "="); ok {
			all[name], _ = strconv.Atoi(n)
		}
	}
	return all
}

func checkCall(args []string) string {
	c := parseCall([]string{"client", "ClusterIP", "tcp", args[0], args[1]})
	got := tally{countsOf(args[2]), countsOf(args[3])}
	return okIf(c.check("shop/web", [2]tally{got, got}) == nil)
}

func checkEvent(args []string) string {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	e := &event{done: at(10), after: [2][]string{strings.Split(args[1], ",")}}
	if args[0] != "" {
		e.before[0] = strings.Split(args[0], ",")
	}
	var attempts []attempt
	then := slices.Repeat(strings.Split(args[3], ","), settled+1)
	for i, answer := range append(strings.Split(args[2], ","), then...) {
		if answer != "" {
			attempts = append(attempts, attempt{start: at(10 + i), end: at(11 + i), answer: answer})
		}
	}
	since, seen := e.seenBy(0, attempts)
	if !seen {
		return "not in force"
	}
	e.inForce[0] = since
	_, _, err := e.check(0, attempts)
	return fmt.Sprintf("in force at %d, %s", since.UnixMilli(), okIf(err == nil))
}
